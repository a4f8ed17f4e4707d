#include "scantape/spectral_radius.h"

#include <algorithm>
#include <cmath>

#include "case.h"

namespace scantape::cases {
namespace {

/// Matrices whose spectral radius is known, or (below 0) not.
struct Regime {
  const char* name;
  std::function<double(std::int64_t n)> radius;
  Fill matrix;
  std::int64_t largest = 100;
  double tolerance = 1e-6;  // of what is known: how far the definition is from the eigenvalue, and f32
};

/// element(rng, i, j) everywhere.
template <class Element>
Fill each(Element element) {
  return [element](Rng& rng, const Shape& shape) {
    Values values;
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j) values.push_back(element(rng, i, j));
    return values;
  };
}

/// Turns pairs of axes, each by an angle of its own, times `size`; a last odd axis is only scaled.
Fill rotations(double size) {
  return [size](Rng&, const Shape& shape) {
    const std::int64_t n = shape[0];
    Values values(static_cast<std::size_t>(n * n), 0.0);
    const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
      return values[static_cast<std::size_t>(i * n + j)];
    };
    for (std::int64_t i = 0; i < n; i += 2) {
      if (i + 1 == n) {
        at(i, i) = size;
        continue;
      }
      const double angle = 0.3 + 0.17 * static_cast<double>(i);
      at(i, i) = at(i + 1, i + 1) = size * std::cos(angle);
      at(i, i + 1) = -size * std::sin(angle);
      at(i + 1, i) = size * std::sin(angle);
    }
    return values;
  };
}

std::function<double(std::int64_t)> always(double radius) {
  return [radius](std::int64_t) { return radius; };
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {.name = "normal", .radius = always(-1), .matrix = normal(0, 0.3)},
      {.name = "rotations 0.9", .radius = always(0.9), .matrix = rotations(0.9), .tolerance = 1e-5},
      {.name = "rotations 1.0001", .radius = always(1.0001), .matrix = rotations(1.0001), .tolerance = 1e-5},
      // Eigenvalues on the diagonal; what is beside them grows with the power and cancels in the ratio.
      {.name = "triangular",
       .radius = always(0.75),
       .matrix = each([](Rng& rng, std::int64_t i, std::int64_t j) {
         return i == j ? (i == 0 ? -0.75 : rng.uniform(-0.7, 0.7)) : i < j ? rng.uniform(-1, 1) : 0;
       }),
       .tolerance = 1e-5},
      {.name = "Jordan block",
       .radius = always(0.5),
       .matrix = each([](Rng&, std::int64_t i, std::int64_t j) {
         return i == j ? 0.5 : i + 1 == j ? 1.0 : 0.0;
       }),
       .largest = 64,
       .tolerance = 1e-2},
      {.name = "nilpotent", .radius = always(0), .matrix = each([](Rng& rng, std::int64_t i, std::int64_t j) {
                                                   return i < j ? rng.uniform(1, 2) : 0;
                                                 })},
      {.name = "zero", .radius = always(0), .matrix = constant(0)},
      // All ones times a size: one eigenvalue, n times it. Squares of the elements leave f32.
      {.name = "1e25",
       .radius = [](std::int64_t n) { return 1e25 * static_cast<double>(n); },
       .matrix = constant(1e25),
       .tolerance = 1e-5},
      {.name = "1e-25",
       .radius = [](std::int64_t n) { return 1e-25 * static_cast<double>(n); },
       .matrix = constant(1e-25),
       .tolerance = 1e-5},
  };
  return list;
}

SpectralRadius arguments(const Call& call) {
  SpectralRadius args;
  args.A_bar = call.input("A_bar");
  args.radius = call.output("radius");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(spectral_radius), arguments(call), call);
}

Case spectral_radius_case(std::int64_t n, const Regime& regime, Layout layout) {
  const double known = regime.radius(n);
  Case c;
  c.op = "spectral_radius";
  c.name = "spectral_radius/" + size_name({{"N", n}}) + "/" + regime.name + "," + name(layout);
  c.inputs = {{.name = "A_bar", .shape = {n, n}, .fill = regime.matrix}};
  c.outputs = {{.name = "radius", .shape = {}, .cotangent = false, .zero = known == 0}};
  c.forward = forward;
  c.layout = layout;
  c.cpu_only = n > kMostSpectralRowsOnCuda;
  c.check = [known, tolerance = regime.tolerance](const std::vector<Values>& outputs,
                                                  const std::vector<Values>&) -> std::string {
    if (known < 0 || std::abs(outputs[0][0] - known) <= tolerance * known) return {};
    return "the radius is " + std::to_string(outputs[0][0]) + ", the largest eigenvalue " +
           std::to_string(known);
  };
  c.forward_operations = 28 * std::pow(static_cast<double>(n), 3);
  return c;
}

}  // namespace

std::vector<Case> spectral_radius_cases() {
  std::vector<Case> cases;
  for (const Regime& regime : regimes())
    for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 33, 64, 100}) {
      if (n > regime.largest) continue;
      const bool dense = n % 2 == 0;
      Case c = spectral_radius_case(n, regime, dense ? Layout::dense : Layout::misaligned);
      c.properties = n <= 5;
      cases.push_back(std::move(c));
    }
  Regime none = regimes()[0];
  none.radius = always(0);
  cases.push_back(spectral_radius_case(0, none, Layout::dense));
  cases.push_back(spectral_radius_case(64, regimes()[0], Layout::dense));
  cases.back().name += ",timed";
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
