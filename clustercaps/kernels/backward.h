// The backward pass: votes are recomputed tile by tile, followed by the two convolution gradients
// of the tile.
#pragma once

#include <memory>
#include <numeric>

#include "backward_job.h"
#include "forward.h"
#include "parent_tile.h"
#include "products.h"

namespace caps {

// One thread's part: some images and some children, so that only this thread adds to the gradient of
// these children of these images.
template <typename S>
class BackwardChunk {
 public:
  BackwardChunk(const BackwardJob<S>& job, int64_t first, int64_t last, int64_t first_child,
                int64_t last_child)
      : job_(job), layer_(job.layer), taps_(all_taps(layer_)),
        taps_across_dims_(taps_across_dims(layer_)), first_(first), last_(last),
        first_child_(first_child), children_(last_child - first_child) {
    const int64_t width = job.panels.width, positions = layer_.positions();
    images_ = std::min(std::max<int64_t>(1, kBackwardGroup / positions), last - first);
    panels_ = std::min(job.few_taps() ? kFewTapsPanels : kBackwardPanels,
                       round_up(images_ * positions, width) / width);
    const int64_t columns = panels_ * width, rows = layer_.rows();
    planes_ = Buffer<S>(children_ * images_ * layer_.planes_size());
    patches_ = Buffer<S>(job.patch_rows() * columns);
    if (job.x_gradient) {
      pulled_ = Buffer<S>(job.pulled_taps * columns);
      plane_gradients_ = Buffer<S>(children_ * images_ * layer_.planes_size());
    }
    if (job.few_taps()) {
      lanes_ = Buffer<S>(clusters() * layer_.all_rows() * (layer_.taps() + 1) * kLanes<S>);
      rows_ = Buffer<S>(rows * kRowStride<S>);
    } else {
      rows_ = Buffer<S>(panels_ * job.block * rows * kRowStride<S>);
      if (job.need_weight) columns_ = Buffer<S>(columns * job.padded_taps);
    }
    if (layer_.pairs<S>()) {
      pairs_ = Buffer<S>(panels_ * layer_.items<S>() * width);
      row_pairs_ = Buffer<S>(job.few_taps() ? panels_ * layer_.taps() * kRowStride<S>
                                            : panels_ * (job.block * rows + 1) * kRowStride<S>);
    }
    if (job.need_weight) {
      weight_gradient_ = Buffer<S>(clusters() * layer_.all_rows() * job.padded_taps);
    }
    if (job.need_bias && !job.bias_as_tap()) {
      bias_gradient_ = Buffer<S>(clusters() * layer_.all_rows() * kLanes<S>);
    }
    // Chunks with other children of the same images would compute the same gradients of the norm.
    parents_ = ParentTile<S>(job, images_, columns, first_child == 0);
  }

  void run() {
    for (int64_t image = first_; image < last_; image += images_) {
      group(image, std::min(images_, last_ - image));
    }
    if (job_.few_taps()) sum_lanes();
  }

  // Clusters of this chunk: [first_cluster, first_cluster + clusters).
  int64_t first_cluster() const { return first_child_ * layer_.clusters; }
  int64_t clusters() const { return children_ * layer_.clusters; }
  // [cluster, parent, row, padded taps], and [cluster, parent, row, lane] or null.
  const S* weight_gradient() const { return weight_gradient_.get(); }
  const S* bias_gradient() const { return bias_gradient_.get(); }
  // Gradients of the norm's weight, then of its bias; null if another chunk computes them.
  const S* norm_gradient() const { return parents_.norm_gradient(); }

 private:
  S* planes_of(const Buffer<S>& planes, int64_t child, int64_t image) {
    return planes.get() + (child * images_ + image) * layer_.planes_size();
  }

  // Calls work(child index in the chunk, image index in the group, offset of its feature map).
  template <typename Work>
  void for_each_map(int64_t image, int64_t images, Work work) {
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t child = 0; child < children_; ++child) {
        const int64_t map = (image + i) * layer_.in_channels + first_child_ + child;
        work(child, i, map * layer_.image_size());
      }
    }
  }

  void group(int64_t image, int64_t images) {
    for_each_map(image, images, [&](int64_t child, int64_t i, int64_t at) {
      pad_planes(layer_, job_.x + at, planes_of(planes_, child, i));
    });
    if (job_.x_gradient) {
      std::fill_n(plane_gradients_.get(), children_ * images_ * layer_.planes_size(), S(0));
    }
    if (job_.moments) parents_.find_slopes(job_, image, images);
    const int64_t all = images * layer_.positions(), step = panels_ * job_.panels.width;
    for (int64_t at = 0; at < all; at += step) {
      tile_.place(layer_, at, std::min(step, all - at), job_.panels.width, kLanes<S>);
      parents_.gather(job_, tile_, image);
      for (int64_t child = 0; child < children_; ++child) differentiate_tile(child);
    }
    if (!job_.x_gradient) return;
    for_each_map(image, images, [&](int64_t child, int64_t i, int64_t at) {
      crop_planes(layer_, planes_of(plane_gradients_, child, i), job_.x_gradient + at);
    });
  }

  void differentiate_tile(int64_t child) {
    gather_patches(taps_, tile_, planes_of(planes_, child, 0), job_.patch_rows(),
                   patches_.get());
    if constexpr (kHasPairs<S>) {
      if (pairs_.get()) {
        pair_patches(layer_, tile_, patches_.get(), job_.patch_rows(), pairs_.get());
      }
    }
    if (job_.few_taps()) return learn_tile(child);
    // gather_patches may have overwritten the tap of ones.
    for (int64_t panel = 0; job_.bias_as_tap() && panel < tile_.panels(); ++panel) {
      const int64_t at = (panel * job_.padded_taps + layer_.taps()) * job_.panels.width;
      std::fill_n(patches_.get() + at, job_.panels.width, S(1));
    }
    if (columns_.get()) {
      turn_patches(tile_, patches_.get(), job_.padded_taps, columns_.get());
      if constexpr (kHasTails<S>) {
        if (job_.tail()) fold_tail(tile_, job_.padded_taps, columns_.get(), EachLane<S>{});
      }
    }
    if constexpr (kHasPairs<S>) {
      // Columns as pairs of positions, in place.
      if (pairs_.get() && columns_.get()) {
        pair_rows(columns_.get(), tile_.panels() * tile_.width, job_.padded_taps, job_.padded_taps,
                  columns_.get());
      }
    }
    for (int64_t n = 0; n < layer_.clusters; ++n) {
      for (int64_t first = 0; first < layer_.parents(); first += job_.block) {
        const int64_t count = std::min(job_.block, layer_.parents() - first);
        differentiate_rows(child * layer_.clusters + n, first, count);
        push_gradients(child * layer_.clusters + n, first, count, n == 0 && first == 0);
      }
    }
    if (job_.x_gradient) {
      scatter_patches(taps_across_dims_, tile_, pulled_.get(), job_.pulled_taps,
                      planes_of(plane_gradients_, child, 0));
    }
  }

  // A panel of a cluster (index in the chunk) for some parents.
  Panel<S> panel_of(int64_t cluster, int64_t parent, int64_t parents, int64_t panel) const {
    const int64_t items = layer_.items<S>(), rows = layer_.rows(), width = job_.panels.width;
    const int64_t row = ((first_cluster() + cluster) * layer_.parents() + parent) * rows;
    const S* patches = pairs_.get() ? pairs_.get() + panel * items * width
                                    : patches_.get() + panel * job_.patch_rows() * width;
    return {patches, job_.weight + row * items, job_.bias + row, items, rows, parents, job_.eps,
            rows_.get()};
  }

  void learn_tile(int64_t child) {
    const int64_t width = job_.panels.width, parents = layer_.parents();
    const int64_t size = layer_.rows() * (layer_.taps() + 1) * kLanes<S>;
    const S* learned = patches_.get();
    int64_t learned_width = width;
    if constexpr (kHasPairs<S>) {
      if (pairs_.get()) {
        pair_vectors_of(layer_, tile_, patches_.get(), row_pairs_.get());
        learned = row_pairs_.get();
        learned_width = items_of(width / kLanes<S>, true) * kLanes<S>;
      }
    }
    S* sums = lanes_.get() + child * layer_.clusters * parents * size;
    for (int64_t n = 0; n < layer_.clusters; ++n) {
      for (int64_t parent = 0; parent < parents; ++parent, sums += size) {
        for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
          const int64_t at = (panel * parents + parent) * width;
          Panel<S> input = panel_of(child * layer_.clusters + n, parent, 1, panel);
          input.learned = learned + panel * layer_.taps() * learned_width;
          input.all_taps = layer_.taps();
          job_.panels.learn(input, parents_.pull() + at, parents_.parent() + at, sums);
        }
      }
    }
  }

  // Sums lanes_ [cluster, parent, tap + 1, row, lane] to the gradients of weight and bias.
  void sum_lanes() {
    const int64_t taps = layer_.taps(), rows = layer_.rows();
    const S* lanes = lanes_.get();
    for (int64_t first = 0; first < clusters() * layer_.all_rows(); first += rows) {
      for (int64_t tap = 0; tap <= taps; ++tap) {
        for (int64_t row = first; row < first + rows; ++row, lanes += kLanes<S>) {
          const S sum = std::accumulate(lanes, lanes + kLanes<S>, S(0));
          if (tap < taps && job_.need_weight) {
            weight_gradient_.get()[row * job_.padded_taps + tap] = sum;
          }
          if (tap == taps && job_.need_bias) bias_gradient_.get()[row * kLanes<S>] = sum;
        }
      }
    }
  }

  // rows_ [panel, (parent, row), position] of `count` parents.
  void differentiate_rows(int64_t cluster, int64_t first, int64_t count) {
    const int64_t width = job_.panels.width, step = count * layer_.rows() * kRowStride<S>;
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      const int64_t at = (panel * layer_.parents() + first) * width;
      job_.panels.backward(panel_of(cluster, first, count, panel), parents_.pull() + at,
                           parents_.parent() + at, rows_.get() + panel * step);
    }
  }

  void push_gradients(int64_t cluster, int64_t first, int64_t count, bool fresh) {
    const int64_t rows = count * layer_.rows(), width = job_.panels.width;
    const int64_t row = cluster * layer_.all_rows() + first * layer_.rows();
    if (bias_gradient_.get()) sum_bias(rows, bias_gradient_.get() + row * kLanes<S>);
    if constexpr (kHasPairs<S>) {
      if (pairs_.get()) return push_pairs(cluster, first, rows, fresh);
    }
    if (job_.need_weight) {
      push_weight<S, false>({rows_.get(), columns_.get(),
                             weight_gradient_.get() + row * job_.padded_taps, rows,
                             job_.padded_taps, tile_.panels(), width, job_.tail()});
    }
    if (!job_.x_gradient) return;
    const S* weight = panel_of(cluster, first, count, 0).weight;
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      pull_panel<S, false>(width, weight, rows_.get() + panel * rows * kRowStride<S>, rows,
                           layer_.taps(), fresh,
                           pulled_.get() + panel * job_.pulled_taps * width);
    }
  }

  // The same two products in bfloat16, over pairs of positions and over pairs of rows.
  void push_pairs(int64_t cluster, int64_t first, int64_t rows, bool fresh) {
    const int64_t width = job_.panels.width, panels = tile_.panels(), taps = layer_.taps();
    const int64_t row = cluster * layer_.all_rows() + first * layer_.rows();
    if (job_.need_weight) {
      pair_entries(rows_.get(), panels * rows, width, kRowStride<S>, row_pairs_.get());
      push_weight<S, true>({row_pairs_.get(), columns_.get(),
                            weight_gradient_.get() + row * job_.padded_taps, rows,
                            job_.padded_taps, panels, width / 2, false});
    }
    if (!job_.x_gradient) return;
    const int64_t block = job_.block * layer_.rows();
    const int64_t done = pairs_in_blocks(layer_.all_rows(), block) * (first_cluster() + cluster) +
                         pairs_in_blocks(first * layer_.rows(), block);
    for (int64_t panel = 0; panel < panels; ++panel) {
      pair_rows(rows_.get() + panel * rows * kRowStride<S>, rows, width, kRowStride<S>,
                row_pairs_.get());
      pull_panel<S, true>(width, job_.pull_weight + done * taps, row_pairs_.get(),
                          items_of(rows, true), taps, fresh,
                          pulled_.get() + panel * job_.pulled_taps * width);
    }
  }

  void sum_bias(int64_t rows, S* out) {
    for (int64_t panel = 0; panel < tile_.panels(); ++panel) {
      for (int64_t row = 0; row < rows; ++row) {
        const S* from = rows_.get() + (panel * rows + row) * kRowStride<S>;
        Vec<S> sum = load(out + row * kLanes<S>);
        for (int64_t q = 0; q < job_.panels.width; q += kLanes<S>) sum += load(from + q);
        store(out + row * kLanes<S>, sum);
      }
    }
  }

  const BackwardJob<S>& job_;
  const Layer& layer_;
  const std::vector<Tap> taps_, taps_across_dims_;
  int64_t first_, last_, first_child_, children_, images_, panels_;
  Buffer<S> planes_, plane_gradients_, patches_, columns_, pulled_, rows_;
  // Only in bfloat16.
  Buffer<S> pairs_, row_pairs_;
  Buffer<S> lanes_, weight_gradient_, bias_gradient_;
  ParentTile<S> parents_;
  Tile tile_;
};

}  // namespace caps
