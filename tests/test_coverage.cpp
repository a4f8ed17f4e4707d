/// The list of ops, the registry and the cases say the same; nothing that the registry offers is without a
/// case; and the covering sets cover.

#include <algorithm>
#include <map>
#include <set>

#include "case_tests.h"
#include "cases/pairwise.h"
#include "scantape/registry.h"

namespace scantape::cases {
namespace {

std::string value_of(const Case& c, const std::string& option) {
  for (const auto& [name, value] : c.options)
    if (name == option) return value;
  return {};
}

/// Whether the op has this argument at all with the options of the case.
bool exists_in(const OpArgument& argument, const Case& c) {
  return std::all_of(c.options.begin(), c.options.end(),
                     [&](const auto& option) { return argument.exists_with(option.first, option.second); });
}

const Input* find_input(const Case& c, const std::string& name) {
  for (const Input& input : c.inputs)
    if (input.name == name) return &input;
  return nullptr;
}

const Output* find_output(const Case& c, const std::string& name) {
  for (const Output& output : c.outputs)
    if (output.name == name) return &output;
  return nullptr;
}

std::vector<const Case*> cases_of(const std::string& op) {
  return tested_cases([&op](const Case& c) { return c.op == op; });
}

/// Whether some case of the op satisfies the condition.
bool some_case(const std::string& op, const std::function<bool(const Case&)>& condition) {
  const std::vector<const Case*> cases = cases_of(op);
  return std::any_of(cases.begin(), cases.end(), [&](const Case* c) { return condition(*c); });
}

TEST(Registry, HasTheOpsOfTheBuild) {
  ASSERT_EQ(registry().size(), op_entries().size());
  for (std::size_t i = 0; i < registry().size(); ++i) {
    EXPECT_EQ(registry()[i].name, op_entries()[i].name);
    EXPECT_STREQ(name(registry()[i].kind), op_entries()[i].kind) << registry()[i].name;
  }
}

TEST(Cases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Case& c : all_cases()) {
    EXPECT_TRUE(names.insert(c.name).second) << "two cases are named " << c.name;
    EXPECT_EQ(c.name.rfind(c.op + "/", 0), 0u) << c.name << " does not begin with its op";
  }
}

TEST(Cases, NameOnlyWhatTheRegistryKnows) {
  for (const Case& c : all_cases()) {
    const OpInfo* op = find_op(c.op);
    ASSERT_NE(op, nullptr) << c.name;
    ASSERT_EQ(c.inputs.size(), op->inputs.size()) << c.name;
    ASSERT_EQ(c.outputs.size(), op->outputs.size()) << c.name;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      const Input& input = c.inputs[i];
      const OpArgument& known = op->inputs[i];
      ASSERT_EQ(input.name, known.name) << c.name;
      EXPECT_TRUE(input.present || known.optional) << c.name << ": " << input.name;
      EXPECT_TRUE(!input.present || exists_in(known, c)) << c.name << ": " << input.name;
      EXPECT_TRUE(input.present || known.only_with.empty() || !exists_in(known, c))
          << c.name << ": " << input.name;
      EXPECT_TRUE(!input.gradient || known.gradient) << c.name << ": " << input.name;
      EXPECT_TRUE(!input.gradient || input.present || known.gradient_when_absent)
          << c.name << ": " << input.name;
      EXPECT_EQ(input.type == ElementType::f64, known.f64) << c.name << ": " << input.name;
      EXPECT_EQ(input.type == ElementType::i32, known.i32) << c.name << ": " << input.name;
      EXPECT_EQ(input.type == ElementType::wide, known.wide) << c.name << ": " << input.name;
      EXPECT_EQ(input.type_of_gradient() == ElementType::wide, known.wide || known.wide_gradient)
          << c.name << ": d_" << input.name;
    }
    for (std::size_t i = 0; i < c.outputs.size(); ++i) {
      const Output& output = c.outputs[i];
      const OpArgument& known = op->outputs[i];
      ASSERT_EQ(output.name, known.name) << c.name;
      EXPECT_TRUE(output.present || known.optional) << c.name << ": " << output.name;
      EXPECT_TRUE(!output.present || exists_in(known, c)) << c.name << ": " << output.name;
      EXPECT_TRUE(output.present || known.only_with.empty() || !exists_in(known, c))
          << c.name << ": " << output.name;
      EXPECT_TRUE(!output.cotangent || known.gradient) << c.name << ": " << output.name;
      EXPECT_EQ(static_cast<bool>(output.initial), known.in_place) << c.name << ": " << output.name;
      EXPECT_EQ(output.type == ElementType::wide, known.wide) << c.name << ": " << output.name;
    }
    ASSERT_EQ(c.options.size(), op->options.size()) << c.name;
    for (std::size_t i = 0; i < c.options.size(); ++i) {
      const std::vector<std::string>& values = op->options[i].values;
      EXPECT_EQ(c.options[i].first, op->options[i].name) << c.name;
      EXPECT_EQ(std::count(values.begin(), values.end(), c.options[i].second), 1)
          << c.name << ": " << c.options[i].first << "=" << c.options[i].second;
    }
  }
}

/// An option that says whether an argument is given says it truly.
TEST(Cases, GiveWhatTheirOptionsSay) {
  for (const Case& c : all_cases())
    for (const auto& [option, value] : c.options) {
      const Input* input = find_input(c, option);
      const Output* output = find_output(c, option);
      EXPECT_TRUE(input == nullptr || input->present == (value == "present")) << c.name;
      EXPECT_TRUE(output == nullptr || output->present == (value == "present")) << c.name;
    }
}

bool runs_in(const Case& c, DType dtype) {
  const std::vector<DType> all = dtypes(c);
  return std::find(all.begin(), all.end(), dtype) != all.end();
}

/// A case runs in no type that its op does not take.
TEST(Cases, RunInTypesOfTheirOp) {
  for (const Case& c : all_cases()) {
    const std::vector<DType>& known = find_op(c.op)->dtypes;
    for (const DType dtype : dtypes(c))
      EXPECT_NE(std::find(known.begin(), known.end(), dtype), known.end()) << c.name << " " << name(dtype);
  }
}

/// In every type that the op takes.
TEST(Registry, EveryOptionAndGradientHasACase) {
  for (const OpInfo& op : registry()) {
    EXPECT_FALSE(cases_of(op.name).empty()) << op.name;
    EXPECT_FALSE(op.dtypes.empty()) << op.name;
    for (const DType dtype : op.dtypes)
      EXPECT_TRUE(some_case(op.name, [&](const Case& c) { return c.properties && runs_in(c, dtype); }))
          << op.name << " " << name(dtype);
    for (const OpArgument& argument : op.inputs) {
      if (!op.has_backward() || !argument.gradient) continue;
      const auto checked = [&](const Case& c) {
        const Input* input = find_input(c, argument.name);
        return input->gradient && !input->zero_gradient;
      };
      for (const DType dtype : op.dtypes)
        EXPECT_TRUE(some_case(op.name, [&](const Case& c) { return checked(c) && runs_in(c, dtype); }))
            << op.name << ": " << argument.name << " in " << name(dtype);
      for (const OpOption& option : op.options)
        for (const std::string& value : option.values) {
          const bool left_out =
              option.name == argument.name && value == "absent" && !argument.gradient_when_absent;
          if (left_out || !argument.exists_with(option.name, value)) continue;
          EXPECT_TRUE(some_case(
              op.name, [&](const Case& c) { return checked(c) && value_of(c, option.name) == value; }))
              << "no case for " << op.name << " " << option.name << "=" << value << ", gradient of "
              << argument.name;
        }
    }
    for (const OpOption& one : op.options)
      for (const OpOption& other : op.options)
        for (const std::string& a : one.values)
          for (const std::string& b : other.values) {
            if (&one == &other) continue;
            EXPECT_TRUE(some_case(
                op.name,
                [&](const Case& c) { return value_of(c, one.name) == a && value_of(c, other.name) == b; }))
                << "no case for " << op.name << " " << one.name << "=" << a << " with " << other.name << "="
                << b;
          }
  }
}

/// Each cotangent is given somewhere and left out somewhere where it can be.
TEST(Registry, EveryCotangentIsGivenAndLeftOut) {
  for (const OpInfo& op : registry()) {
    int cotangents = 0;
    for (const OpArgument& output : op.outputs) cotangents += output.gradient ? 1 : 0;
    for (const OpArgument& argument : op.outputs) {
      if (!op.has_backward() || !argument.gradient) continue;
      const auto given = [&](const Case& c) {
        const Output* output = find_output(c, argument.name);
        return output->present && output->cotangent;
      };
      EXPECT_TRUE(some_case(op.name, given)) << op.name << ": d_" << argument.name;
      EXPECT_TRUE(cotangents == 1 || some_case(op.name, [&](const Case& c) { return !given(c); }))
          << op.name << ": d_" << argument.name << " is never left out";
    }
  }
}

TEST(Registry, EveryOpHasCasesOfEachPurpose) {
  for (const OpInfo& op : registry()) {
    EXPECT_TRUE(some_case(op.name, [](const Case& c) { return c.properties; })) << op.name;
    EXPECT_TRUE(some_case(op.name, [](const Case& c) { return c.layout == Layout::misaligned; })) << op.name;
    if (op.has_backward()) {
      EXPECT_TRUE(some_case(op.name, [](const Case& c) { return c.finite_differences; })) << op.name;
      EXPECT_TRUE(some_case(op.name, [](const Case& c) { return static_cast<bool>(c.backward); })) << op.name;
    }
    const bool strided = some_case(op.name, [](const Case& c) {
      return std::any_of(c.inputs.begin(), c.inputs.end(), [](const Input& input) { return input.strided; });
    });
    EXPECT_TRUE(!strided || some_case(op.name, [](const Case& c) { return c.layout == Layout::strided; }))
        << op.name;
    const bool timed = std::any_of(all_cases().begin(), all_cases().end(), [&](const Case& c) {
      return c.op == op.name && c.benchmark && c.forward_operations > 0 &&
             (!c.backward || c.backward_operations > 0);
    });
    EXPECT_TRUE(timed) << op.name << " has no benchmark";
  }
}

/// Whether some tensor of the case has this size on some axis.
bool has_size(const Case& c, std::int64_t size) {
  const auto in = [size](const Shape& shape) {
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == size) return true;
    return false;
  };
  return std::any_of(c.inputs.begin(), c.inputs.end(), [&](const Input& input) { return in(input.shape); });
}

TEST(Sizes, EveryLengthStateAndWidthOccurs) {
  const auto expect_sizes = [](const std::string& op, const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes)
      EXPECT_TRUE(some_case(op, [size](const Case& c) { return has_size(c, size); }))
          << op << " never has size " << size;
  };
  for (const char* op : {"projection", "layer_norm", "softplus", "silu", "neg_exp", "copy", "scan",
                         "discretized_scan", "causal_conv1d", "state_output", "mse", "huber", "quantile",
                         "grad_norm", "adamw", "embedding", "cross_entropy"})
    expect_sizes(op, lengths());
  for (const char* op : {"projection", "discretize", "scan", "discretized_scan", "spectral_radius"})
    expect_sizes(op, states());
  for (const char* op : {"projection", "layer_norm", "rms_norm", "projection_layer_norm", "softplus", "silu",
                         "neg_exp", "copy", "discretize", "state_output", "embedding", "cross_entropy"})
    expect_sizes(op, widths());
}

// ---- the generator

std::set<std::vector<int>> pairs_of(const std::vector<PairwiseRow>& rows) {
  std::set<std::vector<int>> pairs;
  for (const PairwiseRow& row : rows)
    for (int a = 0; a < static_cast<int>(row.size()); ++a)
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b)
        pairs.insert({a, row[static_cast<std::size_t>(a)], b, row[static_cast<std::size_t>(b)]});
  return pairs;
}

TEST(Pairwise, HoldsEveryPairInFewRows) {
  const std::vector<int> sizes = {7, 5, 4, 3, 2, 2};
  const std::vector<PairwiseRow> rows = pairwise(sizes);
  std::size_t wanted = 0;
  for (std::size_t a = 0; a < sizes.size(); ++a)
    for (std::size_t b = a + 1; b < sizes.size(); ++b)
      wanted += static_cast<std::size_t>(sizes[a] * sizes[b]);
  EXPECT_EQ(pairs_of(rows).size(), wanted);
  EXPECT_GE(rows.size(), 35u);  // the two largest axes alone need as many
  EXPECT_LE(rows.size(), 60u);  // of 1680
  EXPECT_EQ(pairwise(sizes), rows) << "the same arguments give other rows";
}

TEST(Pairwise, KeepsToWhatIsAllowed) {
  const auto allowed = [](const PairwiseRow& row) { return row[0] + row[1] + row[2] <= 6; };
  const std::vector<PairwiseRow> rows = pairwise({4, 4, 4}, allowed);
  for (const PairwiseRow& row : rows) EXPECT_TRUE(allowed(row));
  EXPECT_EQ(pairs_of(rows).size(), 48u);
}

TEST(Pairwise, RefusesPairsThatNoRowCanHold) {
  EXPECT_THROW(pairwise({3, 3}, [](const PairwiseRow& row) { return row[0] + row[1] < 4; }),
               std::logic_error);
}

}  // namespace
}  // namespace scantape::cases
