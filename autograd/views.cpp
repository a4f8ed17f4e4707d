#include "scantape/copy.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

/// Columns of a matrix of rows that lie `stride` apart.
struct Columns {
  std::int64_t rows, width, stride;
};

template <class AnyView>
AnyView matrix(void* data, const AnyView& like, const Columns& columns) {
  AnyView view(data, like.dtype, like.device, {columns.rows, columns.width});
  view.strides[0] = columns.stride;
  return view;
}

/// Writes or adds a cotangent, which has no gaps, to the columns of a gradient from `begin` on.
void hand_over(BackwardPass& pass, const ConstView& cotangent, const Gradient& gradient, std::int64_t begin,
               const Columns& columns) {
  CopyBackward args;
  args.x = args.d_y =
      matrix(const_cast<void*>(cotangent.data), cotangent, {columns.rows, columns.width, columns.width});
  char* const first = gradient.view.as<char>() + begin * size_of(gradient.view.dtype);
  args.d_x = {matrix(static_cast<void*>(first), gradient.view, columns), gradient.mode};
  pass.call(copy_backward, copy_backward_workspace, args);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

}  // namespace

std::vector<Variable> split(const Variable& x, const std::vector<Shape>& pieces) {
  std::int64_t wanted = 0;
  for (const Shape& piece : pieces) wanted += piece.elements();
  if (!x.present() || x.shape().rank() == 0 || wanted != x.shape().back())
    refuse("split: x has shape " + (x.present() ? name(x.shape()) : "absent") + ", wants [..., " +
           std::to_string(wanted) + "], the columns of all pieces");

  std::vector<Tensor> values;
  std::int64_t begin = 0;
  const int last = x.shape().rank() - 1;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Shape shape;
    for (int axis = 0; axis < last; ++axis) shape.append(x.shape()[axis]);
    for (int axis = 0; axis < pieces[i].rank(); ++axis) shape.append(pieces[i][axis]);
    values.push_back(x.value().slice(last, begin, begin + pieces[i].elements()).reshape(shape));
    begin += pieces[i].elements();
  }
  return record("split", {&x}, values, [pieces, dtype = x.dtype(), device = x.device()](BackwardPass& pass) {
    const Gradient d_x = pass.gradient(0);
    Rows rows;
    if (!as_rows(d_x.view, &rows)) refuse("split: the gradient of x wants rows with one stride");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Columns columns{rows.count, pieces[i].elements(), rows.stride};
      ConstView cotangent = pass.cotangent(static_cast<int>(i));
      Tensor zeros;  // of a piece that no gradient reached
      if (!cotangent.present && d_x.mode == WriteMode::overwrite)
        cotangent = zeros = Tensor::zeros({columns.rows, columns.width}, dtype, device);
      if (cotangent.present) hand_over(pass, cotangent, d_x, begin, columns);
      begin += pieces[i].elements();
    }
  });
}

Variable reshape(const Variable& x, const Shape& shape) {
  if (!x.present() || x.shape().elements() != shape.elements())
    refuse("reshape: x has shape " + (x.present() ? name(x.shape()) : "absent") +
           ", wants as many elements as " + name(shape));
  return record("reshape", {&x}, {x.value().reshape(shape)}, [](BackwardPass& pass) {
    const Gradient d_x = pass.gradient(0);
    Rows rows;
    if (!as_rows(d_x.view, &rows)) refuse("reshape: the gradient of x wants rows with one stride");
    hand_over(pass, pass.cotangent(0), d_x, 0, {rows.count, rows.length, rows.stride});
  })[0];
}

}  // namespace scantape::autograd
