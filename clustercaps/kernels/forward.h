// The forward pass: a loop over tiles of positions, and for each tile over all clusters of all
// children. With few positions, weights are transformed inside this loop.
#pragma once

#include <ATen/Parallel.h>

#include "contrasts.h"
#include "many_votes.h"
#include "norm.h"
#include "tiles.h"

namespace caps {

// Number of positions whose padded images a thread prepares at once: few enough to stay in cache.
constexpr int64_t kForwardGroup = 1024;
constexpr int64_t kForwardPanels = 4;
// At most so many positions form a single tile, and weights are transformed where they are used.
constexpr int64_t kFewPositions = 512;
// Weights transformed at a time: few enough to stay in a near cache.
constexpr int64_t kTurnedEntries = 8192;

// The chunks depend only on the number of threads, without work stealing: results are
// bit-identical between runs.
template <typename Work>
void run_chunks(int64_t chunks, Work work) {
  at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) work(chunk);
  });
}

// Uniform routing is computed as clusters with a single vote, their mean.
template <typename S>
S used_eps(const Layer& layer, S eps) {
  return layer.uniform ? S(1) : eps;
}

template <typename S>
struct ForwardJob {
  Layer layer;
  S eps;
  Norm<S> norm;
  const S* x;
  Contrasts<S> contrasts;
  // All weights transformed, or null if chunks transform those that they need.
  const S* weight;
  const S* bias;
  S* capsules;
  // Null if not needed.
  S* normalised;
  S* scale;
  S* moments;
  ForwardPanel<S> panels;

  void normalise_map(int64_t image, int64_t channel) const {
    const int64_t map = image * layer.channels + channel, size = layer.dim * layer.positions();
    normalise(norm, size, capsules + map * size, normalised + map * size,
              moments ? moments + 2 * map : nullptr);
  }
};

// The part of one thread: a range of positions, numbered across the batch, and a range of parents.
template <typename S>
class ForwardChunk {
 public:
  ForwardChunk(const ForwardJob<S>& job, int64_t first, int64_t last, int64_t first_parent,
               int64_t last_parent)
      : job_(job), layer_(job.layer), taps_(all_taps(layer_)), first_(first), last_(last),
        first_parent_(first_parent), parents_(last_parent - first_parent) {
    const int64_t width = job.panels.width, most = std::min(kForwardGroup, last - first);
    panels_ = round_up(most, width) / width;
    if (job.weight) {
      panels_ = std::min(kForwardPanels, panels_);
    } else {
      const int64_t rows = layer_.rows(), taps = layer_.taps();
      block_ = std::max<int64_t>(1, kTurnedEntries / (rows * taps));
      turned_ = Buffer<S>(block_ * rows * taps);
      if (layer_.pairs<S>()) turned_pairs_ = Buffer<S>(block_ * rows * layer_.items<S>());
    }
    images_ = std::min((most - 1) / layer_.positions() + 2, layer_.batch);
    planes_ = Buffer<S>(images_ * layer_.in_channels * layer_.planes_size());
    patches_ = Buffer<S>(panels_ * layer_.taps() * width);
    if (layer_.pairs<S>()) pairs_ = Buffer<S>(panels_ * layer_.items<S>() * width);
    sum_ = Buffer<S>(parents_ * panels_ * width);
    total_ = Buffer<S>(parents_ * panels_ * width);
  }

  void run() {
    for (int64_t begin = first_; begin < last_; begin += kForwardGroup) {
      group(begin, std::min(last_, begin + kForwardGroup));
    }
  }

 private:
  void group(int64_t begin, int64_t end) {
    const int64_t image = begin / layer_.positions();
    const int64_t images = (end - 1) / layer_.positions() + 1 - image;
    // In the order of the memory, which the hardware then prefetches.
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t child = 0; child < layer_.in_channels; ++child) {
        const int64_t from = (image + i) * layer_.in_channels + child;
        pad_planes(layer_, job_.x + from * layer_.image_size(), planes_of(child, i));
      }
    }
    const int64_t step = panels_ * job_.panels.width, base = image * layer_.positions();
    for (int64_t at = begin; at < end; at += step) {
      tile_.place(layer_, at - base, std::min(step, end - at), job_.panels.width, kLanes<S>);
      route();
      write(image);
    }
    if (job_.normalised && parents_ == layer_.parents()) normalise_finished(begin, end);
  }

  // Images that are entirely in this chunk and end in this group.
  void normalise_finished(int64_t begin, int64_t end) {
    const int64_t positions = layer_.positions();
    for (int64_t image = begin / positions; (image + 1) * positions <= end; ++image) {
      if (image * positions < first_) continue;
      for (int64_t c = 0; c < layer_.channels; ++c) job_.normalise_map(image, c);
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
      gather_patches(taps_, tile_, planes_of(child, 0), layer_.taps(), patches_.get());
      if constexpr (kHasPairs<S>) {
        if (pairs_.get()) pair_patches(layer_, tile_, patches_.get(), layer_.taps(), pairs_.get());
      }
      const int64_t begin = child * layer_.clusters, end = begin + layer_.clusters;
      job_.weight ? add_clusters(begin, end) : turn_and_add_clusters(begin, end);
    }
  }

  // Loop over panels outside clusters: the sums of a panel stay in the L1 cache.
  void add_clusters(int64_t begin, int64_t end) {
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      for (int64_t cluster = begin; cluster < end; ++cluster) {
        const int64_t row = (cluster * layer_.parents() + first_parent_) * layer_.rows();
        add(cluster, panel, 0, parents_, job_.weight + row * layer_.items<S>());
      }
    }
  }

  // Loop over panels inside: every weight is transformed only once.
  void turn_and_add_clusters(int64_t begin, int64_t end) {
    for (int64_t cluster = begin; cluster < end; ++cluster) {
      for (int64_t first = 0; first < parents_; first += block_) {
        const int64_t count = std::min(block_, parents_ - first);
        const S* weight = turn_block(cluster, first, count);
        for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
          add(cluster, panel, first, count, weight);
        }
      }
    }
  }

  const S* turn_block(int64_t cluster, int64_t first, int64_t count) {
    const int64_t rows = layer_.rows(), taps = layer_.taps();
    for (int64_t i = 0; i < count; ++i) {
      job_.contrasts.turn_one(cluster, first_parent_ + first + i, turned_.get() + i * rows * taps);
    }
    if constexpr (kHasPairs<S>) {
      if (turned_pairs_.get()) {
        pair_taps(turned_.get(), count * rows, taps, turned_pairs_.get());
        return turned_pairs_.get();
      }
    }
    return turned_.get();
  }

  // Adds `count` parents, starting with number `first` of this chunk.
  void add(int64_t cluster, int64_t panel, int64_t first, int64_t count, const S* weight) {
    const int64_t items = layer_.items<S>(), rows = layer_.rows(), width = job_.panels.width;
    const int64_t row = (cluster * layer_.parents() + first_parent_ + first) * rows;
    const int64_t at = (panel * parents_ + first) * width;
    const S* patches = pairs_.get() ? pairs_.get() : patches_.get();
    job_.panels.add({patches + panel * items * width, weight, job_.bias + row, items, rows, count,
                     job_.eps, nullptr},
                    sum_.get() + at, total_.get() + at);
  }

  void write(int64_t image) {
    const int64_t width = job_.panels.width;
    for (int64_t parent = 0; parent < parents_; ++parent) {
      for (const Segment& segment : tile_.segments) {
        const int64_t map = (image + segment.image) * layer_.parents() + first_parent_ + parent;
        const int64_t to = map * layer_.positions() + segment.position;
        const int64_t from = (segment.panel * parents_ + parent) * width + segment.column;
        const S *sum = sum_.get() + from, *total = total_.get() + from;
        S *capsules = job_.capsules + to, *scales = job_.scale ? job_.scale + to : nullptr;
        in_vectors<S>(segment.length, [&](int64_t i, auto some) {
          typedef decltype(some) Some;
          const auto scale = inverse(as<Some>(total + i));
          if (scales) as<Some>(scales + i) = scale;
          as<Some>(capsules + i) = as<Some>(sum + i) * scale;
        });
      }
    }
  }

  const ForwardJob<S>& job_;
  const Layer& layer_;
  const std::vector<Tap> taps_;
  int64_t first_, last_, first_parent_, parents_, panels_, images_;
  // Parents whose weights are transformed together, unless all are transformed before.
  int64_t block_ = 0;
  Buffer<S> planes_, patches_, pairs_, sum_, total_, turned_, turned_pairs_;
  Tile tile_;
};

// Normalises images that are divided between chunks: those with a chunk boundary inside, or all if
// chunks divide the parents.
template <typename S>
void normalise_shared(const ForwardJob<S>& job, int64_t chunks, int64_t panels, bool by_parent) {
  const int64_t positions = job.layer.positions();
  std::vector<int64_t> images;
  for (int64_t image = 0; by_parent && image < job.layer.batch; ++image) images.push_back(image);
  for (int64_t chunk = 1; !by_parent && chunk < chunks; ++chunk) {
    const int64_t border = panels * chunk / chunks * job.panels.width;
    const bool known = !images.empty() && images.back() == border / positions;
    if (border % positions && !known) images.push_back(border / positions);
  }
  const int64_t channels = job.layer.channels, maps = images.size() * channels;
  const int64_t grain = std::max<int64_t>(1, 16384 / (job.layer.dim * positions));
  at::parallel_for(0, maps, grain, [&](int64_t begin, int64_t end) {
    for (int64_t map = begin; map < end; ++map) {
      job.normalise_map(images[map / channels], map % channels);
    }
  });
}

// All weights as the panel functions read them, [cluster, parent, row, item].
template <typename S>
Buffer<S> turned_weights(const Layer& layer, const S* weight) {
  Buffer<S> turned = to_contrasts(layer, weight, layer.taps());
  if constexpr (kHasPairs<S>) {
    const int64_t rows = layer.all_clusters() * layer.all_rows();
    if (layer.pairs<S>()) return pair_taps(turned.get(), rows, layer.taps());
  }
  return turned;
}

// Whether threads divide the parents instead of the panels: with few positions, if the largest part
// is then no larger. A partial panel costs as much as a full one.
inline bool divides_parents(const Layer& layer, int64_t width, int64_t threads) {
  const int64_t all = layer.batch * layer.positions(), panels = (all + width - 1) / width;
  if (all > kFewPositions && all >= 2 * width * threads) return false;
  const auto largest = [&](int64_t units) { return (units + threads - 1) / threads; };
  return largest(layer.parents()) * panels <= largest(panels) * layer.parents();
}

// Computes capsules and scale = 1 / (sum of r), both [batch, parent, position]; with a norm, also
// normalised, like capsules, and moments [batch, channel, 2].
template <typename S>
void forward(const Layer& layer, S eps, const Norm<S>& norm, const S* x, const S* weight,
             const S* bias, S* capsules, S* normalised, S* scale, S* moments) {
  const int64_t all = layer.batch * layer.positions();
  if (all == 0) return;
  const ForwardPanel<S> panels = forward_panel<S>(layer);
  const int64_t threads = at::get_num_threads(), width = panels.width;
  const bool by_parent = divides_parents(layer, width, threads);
  const int64_t units = by_parent ? layer.parents() : (all + width - 1) / width;
  const int64_t chunks = std::min(threads, units);
  // Chunks that divide the positions share the transformed weights.
  const bool turn_inside = all <= kFewPositions && (by_parent || chunks == 1);
  const Buffer<S> turned = turn_inside ? Buffer<S>() : turned_weights(layer, weight);
  const Buffer<S> turned_bias = to_contrasts(layer, bias, 1);
  const ForwardJob<S> job{layer, used_eps(layer, eps), norm, x,
                          Contrasts<S>(layer, weight, layer.taps()), turned.get(),
                          turned_bias.get(), capsules, normalised, scale, moments, panels};
  run_chunks(chunks, [&](int64_t chunk) {
    const int64_t begin = units * chunk / chunks, end = units * (chunk + 1) / chunks;
    if (by_parent) {
      ForwardChunk<S>(job, 0, all, begin, end).run();
    } else {
      ForwardChunk<S>(job, begin * width, std::min(all, end * width), 0, layer.parents()).run();
    }
  });
  if (normalised) normalise_shared(job, chunks, units, by_parent && chunks > 1);
}

}  // namespace caps
