#include "scantape/embedding.h"

#include "case.h"
#include "indices.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

Status forward(const Call& call) {
  EmbeddingForward args;
  args.ids = call.input("ids");
  args.weight = call.input("weight");
  args.y = call.output("y");
  return run(SCANTAPE_DIRECTION(embedding_forward), args, call);
}

Status backward(const Call& call) {
  EmbeddingBackward args;
  args.ids = call.input("ids");  // weight and y are not read
  args.d_y = call.cotangent("y");
  args.d_weight = call.gradient("weight");
  return run(SCANTAPE_DIRECTION(embedding_backward), args, call);
}

Case embedding_case(const Shape& ids, std::int64_t rows, std::int64_t columns, Indices indices,
                    Layout layout) {
  Shape y = ids;
  y.append(columns);
  const bool nothing = ids.elements() == 0;
  Case c;
  c.op = "embedding";
  c.name = "embedding/" + scantape::name(ids) + "-" + size_name({{"V", rows}, {"D", columns}}) + "/" +
           name(indices) + "," + scantape::cases::name(layout);
  const bool items = ids.rank() > 0 && !nothing;
  c.inputs = {
      {.name = "ids",
       .shape = ids,
       .fill = index_fill(indices, rows),
       .items = items,
       .type = ElementType::i32},
      {.name = "weight",
       .shape = {rows, columns},
       .fill = normal(),
       .gradient = true,
       .zero_gradient = nothing,
       .strided = true,
       .saved = false,
       .gradient_type = ElementType::wide,
       // A number is a sum over the places of its own id: where these are few, those of a column are no scale for it,
       // and the zeros of all other ids make that of the table small.
       .rule = ErrorRule::tensor,
       .budget = {1e-12, 1e-4}},
  };
  // A copy has every bit.
  c.outputs = {{.name = "y", .shape = y, .items = items, .strided = true, .budget = {0, 0, 1}}};
  c.forward = forward;
  c.backward = backward;
  c.layout = layout;
  c.in_16_bits = true;
  // Differences are taken at a sample of a large table, of which most rows may have no place.
  const bool seen = indices != Indices::any || rows * columns <= 500 || ids.elements() >= 2 * rows;
  c.finite_differences = !nothing && seen;
  c.forward_operations = c.backward_operations = static_cast<double>(y.elements());
  return c;
}

}  // namespace

std::vector<Case> embedding_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const std::vector<Indices> kinds = {Indices::any, Indices::few, Indices::one};
  for (const Layout layout : layouts) add(embedding_case({3, 4}, 5, 7, Indices::any, layout), true);
  // Ids that stand in many places: sums in parts, whose first and later ones lie side by side in sorted order.
  for (const Indices indices : kinds) {
    add(embedding_case({2, 150}, 4, 9, indices, Layout::dense), true);
    add(embedding_case({1100}, 7, 5, indices, Layout::dense), false);
    add(embedding_case({64}, 3, 4, indices, Layout::dense), false);
    add(embedding_case({65}, 3, 4, indices, Layout::dense), false);
  }
  add(embedding_case({}, 5, 40, Indices::any, Layout::dense), false);
  add(embedding_case({0}, 5, 3, Indices::any, Layout::dense), false);
  add(embedding_case({3, 2, 2}, 9000, 1, Indices::any, Layout::dense), false);
  // More ids than the warps of a launch take at once.
  add(embedding_case({33000}, 11, 1, Indices::any, Layout::dense), false);
  cases.back().in_16_bits = false;
  const std::vector<std::int64_t> batches = {1, 3}, tables = {1, 2, 50, 1000};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[1] == 0 || lengths()[at(row[0])] * widths()[at(row[3])] <= 40000;
  };
  for (const PairwiseRow& row : pairwise({static_cast<int>(lengths().size()), 2, 4, 4, 3, 3}, affordable))
    add(embedding_case({batches[at(row[1])], lengths()[at(row[0])]}, tables[at(row[2])], widths()[at(row[3])],
                       kinds[at(row[4])], layouts[at(row[5])]),
        false);
  add(embedding_case({32, 60}, 1024, 256, Indices::any, Layout::dense), false);
  cases.back().benchmark = true;
  add(embedding_case({8, 2048}, 8192, 1024, Indices::any, Layout::dense), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
