#pragma once

#include "case.h"

/// What the cases of ssd and of ssd_step share.
namespace scantape::cases {

enum class SsdSkip { head, channel, none };
enum class SsdTimeStep { as_given, softplus, limits, both };

struct SsdShape {
  std::int64_t B = 1, L = 1, H = 1, G = 1, P = 1, N = 1;
};

struct SsdCaseOptions {
  SsdSkip skip = SsdSkip::head;
  bool z = true, dt_bias = true;
  SsdTimeStep time_step = SsdTimeStep::softplus;
  bool initial_state = true, start = false, final_state = true;
  std::int64_t chunk = 0;
  bool out_cotangent = true, final_cotangent = true;
  Layout layout = Layout::dense;
  Fill A = uniform(-2, -0.3), dt{};  ///< dt: in place of that of time_step
  const char* note = "";
};

/// The limits that a time step of a case is clamped to, and how the step is filled: on both sides of each, away from it.
struct SsdLimits {
  double least = 0, most;
};
SsdLimits ssd_limits(SsdTimeStep time_step);

/// x, dt, A, B, C, D, z and dt_bias; `rows` are the leading dimensions.
std::vector<Input> ssd_inputs(const Shape& rows, const SsdShape& shape, const SsdCaseOptions& options);
/// The options that both ops have.
std::vector<std::pair<std::string, std::string>> ssd_case_options(const SsdShape& shape,
                                                                  const SsdCaseOptions& options);
/// "D head,z,bias,softplus"
std::string ssd_title(const SsdCaseOptions& options);

template <class Args>
void set_ssd_inputs(const SsdCaseOptions& options, const Call& call, Args* args) {
  args->x = call.input("x");
  args->dt = call.input("dt");
  args->A = call.input("A");
  args->B = call.input("B");
  args->C = call.input("C");
  args->D = call.input("D");
  args->z = call.input("z");
  args->dt_bias = call.input("dt_bias");
  args->dt_softplus = options.time_step == SsdTimeStep::softplus || options.time_step == SsdTimeStep::both;
  const SsdLimits limits = ssd_limits(options.time_step);
  args->dt_min = limits.least;
  args->dt_max = limits.most;
}

template <class Args>
void set_ssd_gradients(const Call& call, Args* args) {
  args->d_out = call.cotangent("out");
  args->d_x = call.gradient("x");
  args->d_dt = call.gradient("dt");
  args->d_A = call.gradient("A");
  args->d_B = call.gradient("B");
  args->d_C = call.gradient("C");
  args->d_D = call.gradient("D");
  args->d_z = call.gradient("z");
  args->d_dt_bias = call.gradient("dt_bias");
}

}  // namespace scantape::cases
