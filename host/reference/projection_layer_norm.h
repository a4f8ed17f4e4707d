#pragma once

#include <memory>

#include "common.h"
#include "scantape/layer_norm.h"
#include "scantape/projection.h"
#include "scantape/projection_layer_norm.h"

/// On the CPU the fused op is a projection and a layer norm, one after the other: the projection's form is the caller's.
namespace scantape::reference {

inline Status project(const ProjectionLayerNormForward& args, const View& p,
                      Status (*form)(const ProjectionForward&) noexcept) noexcept {
  ProjectionForward projection;
  projection.x = args.x;
  projection.weight = args.weight;
  projection.bias = args.bias;
  projection.y = p;
  return form(projection);
}

/// The norm's arguments that both directions have.
inline LayerNormBackward norm_of(const ProjectionLayerNormForward& args, const View& p) noexcept {
  LayerNormBackward norm;
  norm.x = p;
  norm.weight = args.norm_weight;
  norm.bias = args.norm_bias;
  norm.eps = args.eps;
  norm.statistics = args.statistics;
  return norm;
}

/// p lies in y, and is normalised there.
inline Status project_and_normalise(const ProjectionLayerNormForward& args,
                                    Status (*form)(const ProjectionForward&) noexcept) noexcept {
  SCANTAPE_TRY(project(args, args.y, form));
  LayerNormForward norm = norm_of(args, args.y);
  norm.y = args.y;
  return reference::layer_norm_forward(norm);
}

/// p is computed again, and its cotangent written over it: the norm's loops read each element before they write it.
inline Status differentiate(const ProjectionLayerNormBackward& args, const View& p,
                            Status (*form)(const ProjectionForward&) noexcept,
                            Status (*form_backward)(const ProjectionBackward&) noexcept) noexcept {
  SCANTAPE_TRY(project(args, p, form));
  const bool goes_on = args.d_x.wanted() || args.d_weight.wanted() || args.d_bias.wanted();
  LayerNormBackward norm = norm_of(args, p);
  norm.d_y = args.d_y;
  if (goes_on) norm.d_x = {p, WriteMode::overwrite};
  norm.d_weight = args.d_norm_weight;
  norm.d_bias = args.d_norm_bias;
  SCANTAPE_TRY(reference::layer_norm_backward(norm));
  if (!goes_on) return {};
  ProjectionBackward projection;
  projection.x = args.x;
  projection.weight = args.weight;
  projection.bias = args.bias;
  projection.d_y = p;
  projection.d_x = args.d_x;
  projection.d_weight = args.d_weight;
  projection.d_bias = args.d_bias;
  return form_backward(projection);
}

inline Status differentiate(const ProjectionLayerNormBackward& args,
                            Status (*form)(const ProjectionForward&) noexcept,
                            Status (*form_backward)(const ProjectionBackward&) noexcept) noexcept {
  std::unique_ptr<double[]> room;
  SCANTAPE_TRY(run("projection_layer_norm_backward", [&] {
    const auto bytes = static_cast<std::size_t>(args.d_y.elements() * size_of(args.d_y.dtype));
    room = std::make_unique_for_overwrite<double[]>(bytes / sizeof(double) + 1);
  }));
  return differentiate(args, View(room.get(), args.d_y.dtype, kCpu, args.d_y.shape), form, form_backward);
}

}  // namespace scantape::reference
