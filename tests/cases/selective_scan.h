#pragma once

#include "case.h"

/// What the cases of selective_scan and of selective_scan_step share.
namespace scantape::cases {

struct SelectiveScanShape {
  std::int64_t B = 1, L = 1, E = 1, G = 1, N = 1;
};

struct SelectiveScanCaseOptions {
  bool D = true, z = true, dt_bias = true, softplus = true;
  bool initial_state = true, start = false, final_state = true;
  bool out_cotangent = true, final_cotangent = true;
  Layout layout = Layout::dense;
  Fill A = uniform(-2, -0.3), dt{};  ///< dt: in place of what suits softplus or its absence
  const char* note = "";
};

/// u, dt, A, B, C, D, z and dt_bias; `rows` are the leading dimensions.
std::vector<Input> selective_scan_inputs(const Shape& rows, const SelectiveScanShape& shape,
                                         const SelectiveScanCaseOptions& options);
/// The options that both ops have.
std::vector<std::pair<std::string, std::string>> selective_scan_case_options(
    const SelectiveScanShape& shape, const SelectiveScanCaseOptions& options);
/// "D,z,bias,softplus"
std::string selective_scan_title(const SelectiveScanCaseOptions& options);

template <class Args>
void set_selective_scan_inputs(const SelectiveScanCaseOptions& options, const Call& call, Args* args) {
  args->u = call.input("u");
  args->dt = call.input("dt");
  args->A = call.input("A");
  args->B = call.input("B");
  args->C = call.input("C");
  args->D = call.input("D");
  args->z = call.input("z");
  args->dt_bias = call.input("dt_bias");
  args->dt_softplus = options.softplus;
}

template <class Args>
void set_selective_scan_gradients(const Call& call, Args* args) {
  args->d_out = call.cotangent("out");
  args->d_u = call.gradient("u");
  args->d_dt = call.gradient("dt");
  args->d_A = call.gradient("A");
  args->d_B = call.gradient("B");
  args->d_C = call.gradient("C");
  args->d_D = call.gradient("D");
  args->d_z = call.gradient("z");
  args->d_dt_bias = call.gradient("dt_bias");
}

}  // namespace scantape::cases
