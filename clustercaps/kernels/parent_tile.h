// The parents of a tile of positions, and their gradients through the norm.
#pragma once

#include "backward_job.h"
#include "tiles.h"

namespace caps {

template <typename S>
class ParentTile {
 public:
  ParentTile() = default;
  // For groups of `images` images and tiles of `columns` positions; `norm` is whether to sum the
  // gradients of the norm.
  ParentTile(const BackwardJob<S>& job, int64_t images, int64_t columns, bool norm)
      : pull_(job.layer.parents() * columns), parent_(job.layer.parents() * columns),
        slopes_(images * job.layer.channels) {
    if (norm && job.need_norm) norm_gradient_ = Buffer<S>(2 * job.map_size());
  }

  // [panel, parent, width].
  const S* pull() const { return pull_.get(); }
  const S* parent() const { return parent_.get(); }
  // Gradients of the norm's weight, then of its bias, or null.
  const S* norm_gradient() const { return norm_gradient_.get(); }

  void find_slopes(const BackwardJob<S>& job, int64_t image, int64_t images) {
    const int64_t size = job.map_size();
    S* gradient = norm_gradient_.get();
    for (int64_t i = 0; i < images * job.layer.channels; ++i) {
      const int64_t map = image * job.layer.channels + i;
      slopes_[i] = norm_slope(job.norm, size, job.capsules + map * size, job.moments + 2 * map,
                              job.gradient + map * size, gradient,
                              gradient ? gradient + size : nullptr);
    }
  }

  // pull = scale * gradient, through the norm, and the parents themselves, [panel, parent, width];
  // beyond the last position the pull is zero, and so are all gradients.
  void gather(const BackwardJob<S>& job, const Tile& tile, int64_t image) {
    const int64_t width = job.panels.width, parents = job.layer.parents();
    for (int64_t parent = 0; parent < parents; ++parent) {
      for (const Segment& segment : tile.segments) {
        const int64_t map = (image + segment.image) * parents + parent;
        const int64_t from = map * job.layer.positions() + segment.position;
        const int64_t to = (segment.panel * parents + parent) * width + segment.column;
        if (parent + kAhead < parents) {
          prefetch(job, from + kAhead * job.layer.positions(), segment.length);
        }
        copy_exactly(parent_.get() + to, job.capsules + from, segment.length);
        if (job.moments) {
          const int64_t channel = segment.image * job.layer.channels + parent / job.layer.dim;
          const int64_t entry = parent % job.layer.dim * job.layer.positions() + segment.position;
          pull_through_norm(job, slopes_[channel], entry, from, segment.length,
                            pull_.get() + to);
        } else {
          in_vectors<S>(segment.length, [&](int64_t i, auto some) {
            typedef decltype(some) Some;
            as<Some>(pull_.get() + to + i) =
                as<Some>(job.gradient + from + i) * as<Some>(job.scale + from + i);
          });
        }
      }
      const int64_t used = tile.count % width, last = tile.panels() - 1;
      S* pull = pull_.get() + (last * parents + parent) * width;
      if (used) std::fill(pull + used, pull + width, S(0));
    }
  }

 private:
  void pull_through_norm(const BackwardJob<S>& job, const Slope<S>& slope, int64_t entry,
                         int64_t from, int64_t length, S* pull) {
    const S* weight = job.norm.weight ? job.norm.weight + entry : nullptr;
    in_vectors<S>(length, [&](int64_t i, auto some) {
      typedef decltype(some) Some;
      auto gradient = as<Some>(job.gradient + from + i);
      if (weight) gradient *= as<Some>(weight + i);
      gradient -= slope.mean_pull;
      gradient -= (as<Some>(job.capsules + from + i) - slope.mean) * slope.lean;
      as<Some>(pull + i) = gradient * (as<Some>(job.scale + from + i) * slope.deviation);
    });
  }

  // The feature maps of the parents are far apart, which the hardware prefetcher does not handle.
  void prefetch(const BackwardJob<S>& job, int64_t from, int64_t length) {
    for (int64_t i = 0; i < length; i += 64 / sizeof(S)) {
      __builtin_prefetch(job.gradient + from + i);
      __builtin_prefetch(job.scale + from + i);
      __builtin_prefetch(job.capsules + from + i);
    }
  }

  Buffer<S> pull_, parent_, norm_gradient_;
  std::vector<Slope<S>> slopes_;
};

}  // namespace caps
