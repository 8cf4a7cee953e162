// The backward pass: votes are computed again, tile by tile, and followed by the two convolution
// gradients of the tile.
#pragma once

#include <numeric>

#include "forward.h"
#include "products.h"

namespace caps {

constexpr int64_t kBackwardPanels = 4;
// With so few taps, and no gradient for the input, the weight gradient is summed lane by lane.
constexpr int64_t kFewTaps = 16;
constexpr int64_t kFewTapsPanels = 16;
constexpr int64_t kAhead = 3;
// Vote gradients kept at once: about this many rows, of (parent, vote), stay in the nearest cache.
constexpr int64_t kBlockRows = 128;

template <typename S>
struct BackwardJob {
  Layer layer;
  S eps;
  const S* x;
  const S* weight;
  const S* transposed;
  const S* bias;
  const S* capsules;
  const S* scale;
  const S* gradient;
  S* x_gradient;
  bool need_weight, need_bias;
  PanelFunctions<S> panels;
  // Parents in a block of rows; taps rounded up to whole vectors, and to whole product rows.
  int64_t block, padded_taps, pulled_taps;

  int64_t rows() const { return layer.parents * layer.votes; }
  bool few_taps() const {
    return layer.taps() <= kFewTaps && !x_gradient && !layer.uniform && panels.learn;
  }
};

// weight as [cluster, block of parents, taps / Rows, (parent, vote), Rows], zeros past the taps.
template <typename S>
Buffer<S> pack_transposed(const BackwardJob<S>& job, const S* weight) {
  const Layer& layer = job.layer;
  const int64_t step = product_rows(job.panels.width / kLanes<S>);
  const int64_t taps = layer.taps(), rows = job.rows();
  Buffer<S> packed(layer.all_clusters() * rows * job.pulled_taps);
  const std::vector<int64_t> offsets = weight_offsets(layer);
  at::parallel_for(0, layer.all_clusters(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * rows; row < end * rows; ++row) {
      const int64_t cluster = row / rows, parent = row % rows / layer.votes;
      const int64_t vote = row % layer.votes, first = parent / job.block * job.block;
      const int64_t block = std::min(job.block, layer.parents - first) * layer.votes;
      const S* from = weight + ((cluster * layer.votes + vote) * layer.parents + parent) * taps;
      S* to = packed.get() + (cluster * rows + first * layer.votes) * job.pulled_taps +
              ((parent - first) * layer.votes + vote) * step;
      for (int64_t tap = 0; tap < taps; tap += step, to += block * step) {
        const int64_t count = std::min(step, taps - tap);
        for (int64_t m = 0; m < count; ++m) to[m] = from[offsets[tap + m]];
      }
    }
  });
  return packed;
}

// One thread's part: a range of (child, image), children outermost, so that only this thread adds
// to the gradient of these children of these images.
template <typename S>
class BackwardChunk {
 public:
  BackwardChunk(const BackwardJob<S>& job, int64_t first, int64_t last)
      : job_(job), layer_(job.layer), offsets_(tap_offsets(layer_)), first_(first), last_(last),
        first_child_(first / layer_.batch) {
    const int64_t width = job.panels.width, positions = layer_.positions();
    images_ = std::min({std::max<int64_t>(1, kGroup / positions), layer_.batch, last - first});
    panels_ = std::min(job.few_taps() ? kFewTapsPanels : kBackwardPanels,
                       round_up(images_ * positions, width) / width);
    const int64_t columns = panels_ * width;
    planes_ = Buffer<S>(images_ * layer_.planes_size());
    patches_ = Buffer<S>(layer_.taps() * columns);
    pull_ = Buffer<S>(layer_.parents * columns);
    parent_ = Buffer<S>(layer_.parents * columns);
    votes_ = Buffer<S>(panels_ * job.block * layer_.votes * kGradientStride<S>);
    scratch_ = Buffer<S>(layer_.votes > kMaxVotes ? layer_.votes * width : 0);
    const int64_t rows = clusters() * job.rows();
    if (job.x_gradient) {
      pulled_ = Buffer<S>(job.pulled_taps * columns);
      plane_gradients_ = Buffer<S>(images_ * layer_.planes_size());
    }
    if (job.few_taps()) {
      lanes_ = Buffer<S>(rows * (layer_.taps() + 1) * kLanes<S>);
    } else if (job.need_weight) {
      pixels_ = Buffer<S>(images_ * layer_.pixels_size());
      columns_ = Buffer<S>(columns * job.padded_taps);
    }
    if (job.need_weight) weight_gradient_ = Buffer<S>(rows * job.padded_taps);
    if (job.need_bias) bias_gradient_ = Buffer<S>(rows * kLanes<S>);
  }

  void run() {
    const int64_t batch = layer_.batch;
    // Children innermost: the parents' gradients of a group of images are then still in cache.
    for (int64_t begin = 0; begin < batch; begin += images_) {
      for (int64_t child = first_child_; child * batch < last_; ++child) {
        const int64_t first = std::max(begin, first_ - child * batch);
        const int64_t last = std::min({begin + images_, batch, last_ - child * batch});
        if (first < last) group(child, first, last - first);
      }
    }
    if (job_.few_taps()) sum_lanes();
  }

  // Clusters this chunk has gradients for: [first_cluster, first_cluster + clusters).
  int64_t first_cluster() const { return first_child_ * layer_.clusters; }
  int64_t clusters() const {
    return ((last_ - 1) / layer_.batch + 1 - first_child_) * layer_.clusters;
  }
  // [cluster, parent, vote, padded taps], and [cluster, parent, vote, lane].
  const S* weight_gradient() const { return weight_gradient_.get(); }
  const S* bias_gradient() const { return bias_gradient_.get(); }

 private:
  void group(int64_t child, int64_t image, int64_t images) {
    const int64_t size = layer_.image_size(), planes = layer_.planes_size();
    for (int64_t i = 0; i < images; ++i) {
      const S* x = job_.x + ((image + i) * layer_.in_channels + child) * size;
      pad_planes(layer_, x, planes_.get() + i * planes);
      if (pixels_.get()) pad_pixels(layer_, x, pixels_.get() + i * layer_.pixels_size());
    }
    if (job_.x_gradient) std::fill_n(plane_gradients_.get(), images * planes, S(0));
    const int64_t all = images * layer_.positions(), step = panels_ * job_.panels.width;
    for (int64_t at = 0; at < all; at += step) {
      tile_.place(layer_, at, std::min(step, all - at), job_.panels.width);
      differentiate_tile(child, image);
    }
    for (int64_t i = 0; job_.x_gradient && i < images; ++i) {
      crop_planes(layer_, plane_gradients_.get() + i * planes,
                  job_.x_gradient + ((image + i) * layer_.in_channels + child) * size);
    }
  }

  void differentiate_tile(int64_t child, int64_t image) {
    gather_patches(offsets_, tile_, planes_.get(), patches_.get());
    if (columns_.get()) {
      gather_columns(layer_, tile_, pixels_.get(), job_.padded_taps, columns_.get());
    }
    gather_parents(image);
    if (job_.few_taps()) return learn_tile(child);
    for (int64_t n = 0; n < layer_.clusters; ++n) {
      for (int64_t first = 0; first < layer_.parents; first += job_.block) {
        const int64_t count = std::min(job_.block, layer_.parents - first);
        differentiate_votes(child * layer_.clusters + n, first, count);
        push_gradients(child * layer_.clusters + n, first, count);
      }
    }
    if (job_.x_gradient) {
      scatter_patches(offsets_, tile_, pulled_.get(), job_.pulled_taps, plane_gradients_.get());
    }
  }

  void learn_tile(int64_t child) {
    const int64_t width = job_.panels.width, columns = panels_ * width;
    const int64_t clusters = layer_.clusters, size = layer_.votes * (layer_.taps() + 1) * kLanes<S>;
    for (int64_t row = 0; row < clusters * layer_.parents; ++row) {
      const int64_t parent = row % layer_.parents;
      const int64_t local = (child - first_child_) * clusters * layer_.parents + row;
      for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
        const int64_t at = parent * columns + panel * width;
        job_.panels.learn(panel_of(child * clusters + row / layer_.parents, parent, panel),
                          pull_.get() + at, parent_.get() + at, lanes_.get() + local * size);
      }
    }
  }

  // lanes_ [cluster, parent, tap + 1, vote, lane] into the gradients of weight and bias.
  void sum_lanes() {
    const int64_t taps = layer_.taps(), votes = layer_.votes;
    const S* lanes = lanes_.get();
    for (int64_t row = 0; row < clusters() * layer_.parents; ++row) {
      for (int64_t tap = 0; tap <= taps; ++tap) {
        for (int64_t k = 0; k < votes; ++k, lanes += kLanes<S>) {
          const int64_t to = row * votes + k;
          const S sum = std::accumulate(lanes, lanes + kLanes<S>, S(0));
          if (tap < taps && job_.need_weight) {
            weight_gradient_.get()[to * job_.padded_taps + tap] = sum;
          }
          if (tap == taps && job_.need_bias) bias_gradient_.get()[to * kLanes<S>] = sum;
        }
      }
    }
  }

  Panel<S> panel_of(int64_t cluster, int64_t parent, int64_t panel) const {
    const int64_t row = cluster * layer_.parents + parent, votes = layer_.votes;
    return {job_.weight + row * layer_.taps() * votes, job_.bias + row * votes,
            patches_.get() + panel * layer_.taps() * job_.panels.width, layer_.taps(), votes,
            job_.eps, false, scratch_.get()};
  }

  // pull = gradient * scale / votes and the parents themselves, [parent, position]; past the last
  // position the pull is zero, and with it every gradient.
  void gather_parents(int64_t image) {
    const S share = S(1) / static_cast<S>(layer_.votes);
    const int64_t columns = panels_ * job_.panels.width;
    for (int64_t parent = 0; parent < layer_.parents; ++parent) {
      S *pull = pull_.get() + parent * columns, *capsules = parent_.get() + parent * columns;
      for (const Segment& segment : tile_.segments) {
        const int64_t map = (image + segment.image) * layer_.parents + parent;
        const int64_t from = map * layer_.positions() + segment.position;
        const int64_t to = segment.panel * job_.panels.width + segment.column;
        if (parent + kAhead < layer_.parents) {
          prefetch_parents(from + kAhead * layer_.positions(), segment.length);
        }
        for (int64_t i = 0; i < segment.length; ++i) {
          pull[to + i] = job_.gradient[from + i] * (job_.scale[from + i] * share);
          capsules[to + i] = job_.capsules[from + i];
        }
      }
      std::fill(pull + tile_.count, pull + columns, S(0));
    }
  }

  // The maps of the parents lie far apart, which the hardware does not foresee.
  void prefetch_parents(int64_t from, int64_t length) {
    for (int64_t i = 0; i < length; i += 64 / sizeof(S)) {
      __builtin_prefetch(job_.gradient + from + i);
      __builtin_prefetch(job_.scale + from + i);
      __builtin_prefetch(job_.capsules + from + i);
    }
  }

  // votes_ [panel, (parent, vote), position] of `count` parents.
  void differentiate_votes(int64_t cluster, int64_t first, int64_t count) {
    const int64_t votes = layer_.votes, width = job_.panels.width, columns = panels_ * width;
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      for (int64_t i = 0; i < count; ++i) {
        S* to = votes_.get() + (panel * count + i) * votes * kGradientStride<S>;
        const int64_t at = (first + i) * columns + panel * width;
        if (layer_.uniform) {
          for (int64_t k = 0; k < votes; ++k) {
            std::copy_n(pull_.get() + at, width, to + k * kGradientStride<S>);
          }
        } else {
          job_.panels.backward(panel_of(cluster, first + i, panel), pull_.get() + at,
                               parent_.get() + at, to);
        }
      }
    }
  }

  void push_gradients(int64_t cluster, int64_t first, int64_t count) {
    const int64_t rows = count * layer_.votes, width = job_.panels.width;
    const int64_t row = (cluster - first_cluster()) * job_.rows() + first * layer_.votes;
    if (job_.need_bias) sum_bias(rows, bias_gradient_.get() + row * kLanes<S>);
    if (job_.need_weight) {
      push_weight<S>({votes_.get(), columns_.get(),
                      weight_gradient_.get() + row * job_.padded_taps, rows, job_.padded_taps,
                      tile_.panels(), width});
    }
    if (!job_.x_gradient) return;
    const S* weight =
        job_.transposed + (cluster * job_.rows() + first * layer_.votes) * job_.pulled_taps;
    const bool fresh = cluster % layer_.clusters == 0 && first == 0;
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      pull_panel(width, weight, votes_.get() + panel * rows * kGradientStride<S>, rows,
                 job_.pulled_taps, fresh, pulled_.get() + panel * job_.pulled_taps * width);
    }
  }

  void sum_bias(int64_t rows, S* out) {
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      for (int64_t row = 0; row < rows; ++row) {
        const S* votes = votes_.get() + (panel * rows + row) * kGradientStride<S>;
        Vec<S> sum = load(out + row * kLanes<S>);
        for (int64_t q = 0; q < job_.panels.width; q += kLanes<S>) sum += load(votes + q);
        store(out + row * kLanes<S>, sum);
      }
    }
  }

  const BackwardJob<S>& job_;
  const Layer& layer_;
  const std::vector<int64_t> offsets_;
  int64_t first_, last_, first_child_, images_, panels_;
  Buffer<S> planes_, pixels_, plane_gradients_, patches_, columns_, pulled_;
  Buffer<S> pull_, parent_, votes_, scratch_, lanes_, weight_gradient_, bias_gradient_;
  Tile tile_;
};

}  // namespace caps
