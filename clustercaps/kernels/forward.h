// The forward pass: positions in tiles, and per tile every cluster of every child.
#pragma once

#include <ATen/Parallel.h>

#include "layer.h"
#include "panels.h"

namespace caps {

// Positions whose padded images a thread prepares at once: few enough to stay in its cache.
constexpr int64_t kGroup = 1024;
constexpr int64_t kForwardPanels = 4;

// Chunks are numbered by the thread count alone, never stolen: results repeat bit for bit.
template <typename Work>
void run_chunks(int64_t chunks, Work work) {
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) work(chunk);
  });
}

// weight [cluster, vote, parent, dim, k, k] as [cluster, parent, tap, vote].
template <typename S>
Buffer<S> pack_votes(const Layer& layer, const S* weight) {
  const int64_t taps = layer.taps(), votes = layer.votes, parents = layer.parents;
  Buffer<S> packed(layer.all_clusters() * parents * taps * votes);
  const int64_t rows = layer.all_clusters() * parents;
  const std::vector<int64_t> offsets = weight_offsets(layer);
  const int64_t grain = std::max<int64_t>(1, 32768 / (taps * votes));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t cluster = row / parents, parent = row % parents;
      const S* from = weight + (cluster * votes * parents + parent) * taps;
      S* to = packed.get() + row * taps * votes;
      // Taps innermost: there are often too few votes for a loop of their own.
      for (int64_t k = 0; k < votes; ++k, from += parents * taps) {
        for (int64_t tap = 0; tap < taps; ++tap) to[tap * votes + k] = from[offsets[tap]];
      }
    }
  });
  return packed;
}

// bias [cluster, vote, parent] as [cluster, parent, vote]; zeros without a bias.
template <typename S>
Buffer<S> pack_bias(const Layer& layer, const S* bias) {
  const int64_t votes = layer.votes, parents = layer.parents;
  Buffer<S> packed(layer.all_clusters() * parents * votes);
  for (int64_t cluster = 0; bias && cluster < layer.all_clusters(); ++cluster) {
    for (int64_t k = 0; k < votes; ++k) {
      for (int64_t parent = 0; parent < parents; ++parent) {
        packed.get()[(cluster * parents + parent) * votes + k] = *bias++;
      }
    }
  }
  return packed;
}

template <typename S>
struct ForwardJob {
  Layer layer;
  S eps;
  const S* x;
  const S* weight;
  const S* bias;
  S* capsules;
  S* scale;
  PanelFunctions<S> panels;
};

// One thread's part: a range of positions, counted through the batch, and a range of parents.
template <typename S>
class ForwardChunk {
 public:
  ForwardChunk(const ForwardJob<S>& job, int64_t first, int64_t last, int64_t first_parent,
               int64_t last_parent)
      : job_(job), layer_(job.layer), offsets_(tap_offsets(layer_)), first_(first), last_(last),
        first_parent_(first_parent), parents_(last_parent - first_parent) {
    const int64_t width = job.panels.width, most = std::min(kGroup, last - first);
    panels_ = std::min(kForwardPanels, round_up(most, width) / width);
    images_ = std::min((most - 1) / layer_.positions() + 2, layer_.batch);
    planes_ = Buffer<S>(images_ * layer_.in_channels * layer_.planes_size());
    patches_ = Buffer<S>(panels_ * layer_.taps() * width);
    sum_ = Buffer<S>(parents_ * panels_ * width);
    total_ = Buffer<S>(parents_ * panels_ * width);
    scratch_ = Buffer<S>(layer_.votes > kMaxVotes ? layer_.votes * width : 0);
  }

  void run() {
    for (int64_t begin = first_; begin < last_; begin += kGroup) {
      group(begin, std::min(last_, begin + kGroup));
    }
  }

 private:
  void group(int64_t begin, int64_t end) {
    const int64_t image = begin / layer_.positions();
    const int64_t images = (end - 1) / layer_.positions() + 1 - image;
    for (int64_t child = 0; child < layer_.in_channels; ++child) {
      for (int64_t i = 0; i < images; ++i) {
        const int64_t from = (image + i) * layer_.in_channels + child;
        pad_planes(layer_, job_.x + from * layer_.image_size(), planes_of(child, i));
      }
    }
    const int64_t step = panels_ * job_.panels.width, base = image * layer_.positions();
    for (int64_t at = begin; at < end; at += step) {
      tile_.place(layer_, at - base, std::min(step, end - at), job_.panels.width);
      route();
      write(image);
    }
  }

  S* planes_of(int64_t child, int64_t image) {
    return planes_.get() + (child * images_ + image) * layer_.planes_size();
  }

  void route() {
    const int64_t size = parents_ * panels_ * job_.panels.width;
    std::fill_n(sum_.get(), size, S(0));
    std::fill_n(total_.get(), size, S(0));
    for (int64_t child = 0; child < layer_.in_channels; ++child) {
      gather_patches(offsets_, tile_, planes_of(child, 0), patches_.get());
      // Panels outside clusters: a panel's sums stay in the nearest cache.
      for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
        for (int64_t n = 0; n < layer_.clusters; ++n) {
          add_cluster(child * layer_.clusters + n, panel);
        }
      }
    }
  }

  void add_cluster(int64_t cluster, int64_t panel) {
    const int64_t taps = layer_.taps(), votes = layer_.votes, width = job_.panels.width;
    const S* patches = patches_.get() + panel * taps * width;
    for (int64_t parent = 0; parent < parents_; ++parent) {
      const int64_t row = cluster * layer_.parents + first_parent_ + parent;
      const int64_t at = (panel * parents_ + parent) * width;
      job_.panels.forward({job_.weight + row * taps * votes, job_.bias + row * votes, patches,
                           taps, votes, job_.eps, layer_.uniform != 0, scratch_.get()},
                          sum_.get() + at, total_.get() + at);
    }
  }

  void write(int64_t image) {
    const int64_t width = job_.panels.width;
    for (int64_t parent = 0; parent < parents_; ++parent) {
      for (const Segment& segment : tile_.segments) {
        const int64_t map = (image + segment.image) * layer_.parents + first_parent_ + parent;
        const int64_t to = map * layer_.positions() + segment.position;
        const int64_t from = (segment.panel * parents_ + parent) * width + segment.column;
        const S *sum = sum_.get() + from, *total = total_.get() + from;
        for (int64_t i = 0; i < segment.length; ++i) {
          const S scale = S(1) / total[i];
          job_.scale[to + i] = scale;
          job_.capsules[to + i] = sum[i] * scale;
        }
      }
    }
  }

  const ForwardJob<S>& job_;
  const Layer& layer_;
  const std::vector<int64_t> offsets_;
  int64_t first_, last_, first_parent_, parents_, panels_, images_;
  Buffer<S> planes_, patches_, sum_, total_, scratch_;
  Tile tile_;
};

// capsules and scale = 1 / (sum of r), both [batch, parent, position].
template <typename S>
void forward(const Layer& layer, S eps, const S* x, const S* weight, const S* bias, S* capsules,
             S* scale) {
  const int64_t all = layer.batch * layer.positions();
  if (all == 0) return;
  const Buffer<S> packed = pack_votes(layer, weight), packed_bias = pack_bias(layer, bias);
  const ForwardJob<S> job{layer,    eps,   x, packed.get(), packed_bias.get(),
                          capsules, scale, panel_functions<S>(layer.votes)};
  const int64_t threads = at::get_num_threads(), width = job.panels.width;
  // Few positions: the threads share the parents, since part of a panel costs as much as a whole.
  const bool by_parent = all < 2 * width * threads;
  const int64_t units = by_parent ? layer.parents : (all + width - 1) / width;
  const int64_t chunks = std::min(threads, units);
  run_chunks(chunks, [&](int64_t chunk) {
    const int64_t begin = units * chunk / chunks, end = units * (chunk + 1) / chunks;
    if (by_parent) {
      ForwardChunk<S>(job, 0, all, begin, end).run();
    } else {
      ForwardChunk<S>(job, begin * width, std::min(all, end * width), 0, layer.parents).run();
    }
  });
}

}  // namespace caps
