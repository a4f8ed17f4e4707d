#include "cpu/matrix_product.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// C is cut into tiles that fit the registers. What a row of tiles wants of A and a column of tiles of B is
// packed first, in the order in which the tile's loop reads it and padded with zeros to whole tiles, so that
// the edges of C run through the same arithmetic as its middle. Nothing is split over k between threads: each
// element is one thread's sum in one order, the same for every m, row and number of threads.

namespace scantape::cpu {

namespace {

constexpr int kMaxVectors = 3;        // in a tile's row
constexpr int kMaxTile = 8 * 3 * 16;  // elements
constexpr std::int64_t kGroup = 256;  // steps of k that are summed by themselves

#if defined(__clang__)
#define SCANTAPE_UNROLL _Pragma("unroll")
#else
#define SCANTAPE_UNROLL _Pragma("GCC unroll 16")
#endif

template <class T>
struct Tiles {
  int rows;
  int lanes;
  void (*multiply[kMaxVectors])(std::int64_t k, const T* a, const T* b,
                                T* tile) noexcept;  // by vectors in a row - 1

  int width() const noexcept { return lanes * kMaxVectors; }
};

namespace baseline {

#define SCANTAPE_TARGET
constexpr int kRows = 4;
template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(16), may_alias));
  static constexpr int kLanes = 16 / sizeof(T);
  static type all(T value) noexcept { return value - type{}; }
  static type multiply_add(type a, type b, type sum) noexcept { return sum + a * b; }
};
#include "cpu/matrix_product_tile.inc"
#undef SCANTAPE_TARGET

}  // namespace baseline

#if defined(__x86_64__)

#define SCANTAPE_INLINE __attribute__((always_inline)) static inline

namespace avx2 {

#define SCANTAPE_TARGET __attribute__((target("avx2,fma")))
constexpr int kRows = 4;
template <class T>
struct Vector;
template <>
struct Vector<float> {
  typedef __m256 type;
  static constexpr int kLanes = 8;
  SCANTAPE_TARGET SCANTAPE_INLINE type all(float value) noexcept { return _mm256_set1_ps(value); }
  SCANTAPE_TARGET SCANTAPE_INLINE type multiply_add(type a, type b, type sum) noexcept {
    return _mm256_fmadd_ps(a, b, sum);
  }
};
template <>
struct Vector<double> {
  typedef __m256d type;
  static constexpr int kLanes = 4;
  SCANTAPE_TARGET SCANTAPE_INLINE type all(double value) noexcept { return _mm256_set1_pd(value); }
  SCANTAPE_TARGET SCANTAPE_INLINE type multiply_add(type a, type b, type sum) noexcept {
    return _mm256_fmadd_pd(a, b, sum);
  }
};
#include "cpu/matrix_product_tile.inc"
#undef SCANTAPE_TARGET

}  // namespace avx2

namespace avx512 {

#define SCANTAPE_TARGET __attribute__((target("avx512f")))
constexpr int kRows = 8;
template <class T>
struct Vector;
template <>
struct Vector<float> {
  typedef __m512 type;
  static constexpr int kLanes = 16;
  SCANTAPE_TARGET SCANTAPE_INLINE type all(float value) noexcept { return _mm512_set1_ps(value); }
  SCANTAPE_TARGET SCANTAPE_INLINE type multiply_add(type a, type b, type sum) noexcept {
    return _mm512_fmadd_ps(a, b, sum);
  }
};
template <>
struct Vector<double> {
  typedef __m512d type;
  static constexpr int kLanes = 8;
  SCANTAPE_TARGET SCANTAPE_INLINE type all(double value) noexcept { return _mm512_set1_pd(value); }
  SCANTAPE_TARGET SCANTAPE_INLINE type multiply_add(type a, type b, type sum) noexcept {
    return _mm512_fmadd_pd(a, b, sum);
  }
};
#include "cpu/matrix_product_tile.inc"
#undef SCANTAPE_TARGET

}  // namespace avx512

#undef SCANTAPE_INLINE

#endif

template <class T>
Tiles<T> tiles_for(InstructionSet set) noexcept {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512) return avx512::tiles<T>();
  if (set == InstructionSet::avx2) return avx2::tiles<T>();
#endif
  (void)set;
  return baseline::tiles<T>();
}

std::int64_t blocks_of(std::int64_t count, std::int64_t size) noexcept {
  return (count + size - 1) / size;
}

/// A matrix as the packing reads it: `lanes` rows of op(A) or columns of op(B), each k steps long.
template <class T>
struct Operand {
  const T* data;
  std::int64_t ld;
  bool adjacent;  // the lanes of one step, rather than the steps of one lane, lie side by side

  const T* at(std::int64_t lane) const noexcept { return data + (adjacent ? lane : lane * ld); }
};

// to[step, lane] for lanes first..first+width-1; zero behind the last lane.
template <class T>
void pack(const Operand<T>& from, std::int64_t first, std::int64_t lanes, std::int64_t width, std::int64_t k,
          T* to) noexcept {
  const std::int64_t used = std::min(width, lanes - first);
  if (used < width) std::fill(to, to + k * width, T(0));
  if (from.adjacent) {
    const T* source = from.at(first);
    for (std::int64_t step = 0; step < k; ++step)
      std::copy_n(source + step * from.ld, used, to + step * width);
    return;
  }
  constexpr std::int64_t kSteps = 32;  // as many as keep what is written in the nearest cache
  for (std::int64_t begin = 0; begin < k; begin += kSteps) {
    const std::int64_t end = std::min(begin + kSteps, k);
    for (std::int64_t lane = 0; lane < used; ++lane) {
      const T* source = from.at(first + lane);
      for (std::int64_t step = begin; step < end; ++step) to[step * width + lane] = source[step];
    }
  }
}

template <class T>
class Product {
 public:
  Product(const MatrixProduct& product, const Tiles<T>& tiles) noexcept
      : p_(product),
        tiles_(tiles),
        a_{static_cast<const T*>(product.a), product.lda, product.transpose_a},
        b_{static_cast<const T*>(product.b), product.ldb, !product.transpose_b} {
    // Below about a quarter of a million multiplications threads cost more than they bring.
    const double work = static_cast<double>(p_.m) * static_cast<double>(p_.n) * static_cast<double>(p_.k);
    threads_ = work < 0x1p18 ? 1 : omp_get_max_threads();
    row_panels_ = blocks_of(p_.m, tiles_.rows);
    column_panels_ = blocks_of(p_.n, tiles_.width());
    // Rows of tiles that are packed at once: what stays in the second cache, yet some work for every thread.
    const std::int64_t panel_bytes = tiles_.rows * p_.k * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t fitting =
        std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(1, panel_bytes));
    row_block_ = std::min(fitting, blocks_of(row_panels_, 4 * threads_));
    row_blocks_ = blocks_of(row_panels_, row_block_);
    column_blocks_ = std::min(column_panels_, blocks_of(2 * threads_, row_blocks_));
    column_block_ = blocks_of(column_panels_, column_blocks_);
    column_blocks_ = blocks_of(column_panels_, column_block_);
  }

  Status run() noexcept { return row_panels_ == 1 ? run_few_rows() : run_many_rows(); }

 private:
  using Memory = std::unique_ptr<T, decltype(&std::free)>;

  static Memory allocate(std::int64_t elements) noexcept {
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(T);
    return Memory(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)), &std::free);
  }
  static Status no_memory() noexcept {
    return Status::fail(Code::out_of_memory, "matrix_product: no memory to pack its operands");
  }

  // One row of tiles, as when a model takes single steps: each panel of B is used once, so it is packed into the nearest
  // memory and not all of B beside itself.
  Status run_few_rows() noexcept {
    const std::int64_t a_size = aligned(tiles_.rows * p_.k), b_size = aligned(tiles_.width() * p_.k);
    const Memory memory = allocate(a_size + b_size * threads_);
    if (memory == nullptr) return no_memory();
    T* const a_packed = memory.get();
    pack(a_, 0, p_.m, tiles_.rows, p_.k, a_packed);
#pragma omp parallel num_threads(threads_)
    {
      T* const b_packed = a_packed + a_size + omp_get_thread_num() * b_size;
      alignas(kAlignment) T tile[kMaxTile];
#pragma omp for schedule(static)
      for (std::int64_t panel = 0; panel < column_panels_; ++panel) {
        const std::int64_t column = panel * tiles_.width(), width = vectors(panel) * tiles_.lanes;
        pack(b_, column, p_.n, width, p_.k, b_packed);
        tiles_.multiply[vectors(panel) - 1](p_.k, a_packed, b_packed, tile);
        store(0, column, width, tile);
      }
    }
    return {};
  }

  Status run_many_rows() noexcept {
    const std::int64_t a_size = aligned(row_block_ * tiles_.rows * p_.k);
    const std::int64_t b_size = aligned(column_panels_ * tiles_.width() * p_.k);
    const Memory memory = allocate(a_size * threads_ + b_size);
    if (memory == nullptr) return no_memory();
    T* const b_packed = memory.get();
    T* const a_packed = b_packed + b_size;
#pragma omp parallel num_threads(threads_)
    {
#pragma omp for schedule(static)
      for (std::int64_t panel = 0; panel < column_panels_; ++panel) {
        pack(b_, panel * tiles_.width(), p_.n, vectors(panel) * tiles_.lanes, p_.k,
             b_packed + b_offset(panel));
      }
      T* const own = a_packed + omp_get_thread_num() * a_size;
#pragma omp for schedule(dynamic) collapse(2)
      for (std::int64_t rows = 0; rows < row_blocks_; ++rows) {
        for (std::int64_t columns = 0; columns < column_blocks_; ++columns)
          multiply_block(rows, columns, own, b_packed);
      }
    }
    return {};
  }

  static constexpr std::int64_t kBlockBytes = 192 << 10;
  static constexpr std::size_t kAlignment = 64;

  static std::int64_t aligned(std::int64_t elements) noexcept {
    constexpr std::int64_t kElements = kAlignment / sizeof(T);
    return blocks_of(elements, kElements) * kElements;
  }
  // The last panel of columns is only as many vectors wide as it must.
  int vectors(std::int64_t panel) const noexcept {
    return static_cast<int>(
        std::min<std::int64_t>(kMaxVectors, blocks_of(p_.n - panel * tiles_.width(), tiles_.lanes)));
  }
  std::int64_t b_offset(std::int64_t panel) const noexcept {
    return panel * tiles_.width() * p_.k;
  }

  void multiply_block(std::int64_t row_block, std::int64_t column_block, T* a_packed,
                      const T* b_packed) const noexcept {
    const std::int64_t first_row = row_block * row_block_;
    const std::int64_t end_row = std::min(first_row + row_block_, row_panels_);
    const std::int64_t first_column = column_block * column_block_;
    const std::int64_t end_column = std::min(first_column + column_block_, column_panels_);
    const std::int64_t a_panel = tiles_.rows * p_.k;
    for (std::int64_t row = first_row; row < end_row; ++row) {
      pack(a_, row * tiles_.rows, p_.m, tiles_.rows, p_.k, a_packed + (row - first_row) * a_panel);
    }
    alignas(kAlignment) T tile[kMaxTile];
    for (std::int64_t column = first_column; column < end_column; ++column) {
      const int width = vectors(column);
      for (std::int64_t row = first_row; row < end_row; ++row) {
        tiles_.multiply[width - 1](p_.k, a_packed + (row - first_row) * a_panel, b_packed + b_offset(column),
                                   tile);
        store(row * tiles_.rows, column * tiles_.width(), width * tiles_.lanes, tile);
      }
    }
  }

  void store(std::int64_t row, std::int64_t column, std::int64_t width, const T* tile) const noexcept {
    const std::int64_t rows = std::min<std::int64_t>(tiles_.rows, p_.m - row);
    const std::int64_t columns = std::min(width, p_.n - column);
    for (std::int64_t r = 0; r < rows; ++r) {
      T* c = static_cast<T*>(p_.c) + (row + r) * p_.ldc + column;
      const T* from = tile + r * width;
      if (p_.accumulate) {
#pragma omp simd
        for (std::int64_t i = 0; i < columns; ++i) c[i] += from[i];
      } else {
        std::copy_n(from, columns, c);
      }
    }
  }

  const MatrixProduct& p_;
  const Tiles<T> tiles_;
  const Operand<T> a_, b_;
  int threads_;
  std::int64_t row_panels_, column_panels_;  // rows and columns of tiles
  std::int64_t row_block_, column_block_;    // of these, in one block
  std::int64_t row_blocks_, column_blocks_;  // blocks are shared out over the threads
};

// A sum over nothing.
template <class T>
void clear(const MatrixProduct& product) noexcept {
  for (std::int64_t row = 0; row < product.m; ++row)
    std::fill_n(static_cast<T*>(product.c) + row * product.ldc, product.n, T(0));
}

template <class T>
Status multiply(const MatrixProduct& product, InstructionSet set) noexcept {
  if (product.m == 0 || product.n == 0) return {};
  if (product.k == 0) {
    if (!product.accumulate) clear<T>(product);
    return {};
  }
  return Product<T>(product, tiles_for<T>(set)).run();
}

}  // namespace

const char* name(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
  }
  return "unknown";
}

InstructionSet best_instruction_set() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return InstructionSet::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::avx2;
#endif
  return InstructionSet::baseline;
}

Status matrix_product(const MatrixProduct& product, InstructionSet set) noexcept {
  if (product.dtype == DType::f32) return multiply<float>(product, set);
  if (product.dtype == DType::f64) return multiply<double>(product, set);
  return Status::fail(Code::unsupported, "matrix product: no 16-bit dtypes on the CPU");
}

Status matrix_product(const MatrixProduct& product) noexcept {
  static const InstructionSet set = best_instruction_set();
  return matrix_product(product, set);
}

}  // namespace scantape::cpu
