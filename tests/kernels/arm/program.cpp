// Calls one function of the kernel on tensors from stdin and writes them, changed, to stdout, so that
// a kernel for another processor can be tested under an emulator, without a torch for that processor.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cluster_cpu.cpp"

// What the kernel needs of torch, which is not linked: three chunks, one after the other.
int at::get_num_threads() { return 3; }
int at::get_thread_num() { return 0; }
void at::internal::set_thread_num(int) {}
c10::ParallelGuard::ParallelGuard(bool) : previous_state_(false) {}
c10::ParallelGuard::~ParallelGuard() {}

namespace {

void read(void* to, size_t bytes) {
  if (bytes > 0 && std::fread(to, bytes, 1, stdin) != 1) std::exit(3);
}

template <typename S, typename Function, size_t... Each>
int call(Function function, const caps::Layer& layer, const double* eps, void* const* tensors,
         std::index_sequence<Each...>) {
  return function(&layer, eps[0], eps[1], static_cast<S*>(tensors[Each])...);
}

}  // namespace

int main(int, char** arguments) {
  const std::string name = arguments[1];
  const size_t count = name.starts_with("forward") ? 9 : 14;
  caps::Layer layer;
  double eps[2];
  read(&layer, sizeof layer);
  read(eps, sizeof eps);
  std::vector<std::vector<char>> memory(count);
  std::vector<void*> tensors(count, nullptr);
  for (size_t i = 0; i < count; ++i) {
    int64_t bytes;
    read(&bytes, sizeof bytes);
    if (bytes < 0) continue;
    memory[i].resize(bytes);
    read(memory[i].data(), bytes);
    tensors[i] = memory[i].data();
  }
  const auto run = [&]<size_t Count>(auto s, auto* function, std::index_sequence<Count>) {
    using S = decltype(s);
    return call<S>(function, layer, eps, tensors.data(), std::make_index_sequence<Count>());
  };
  int code = 4;
#define CAPS_CALL(NAME, S, COUNT) \
  if (name == #NAME) code = run(S(), clustercaps_##NAME, std::index_sequence<COUNT>())
  CAPS_CALL(forward_float32, float, 9);
  CAPS_CALL(forward_float64, double, 9);
  CAPS_CALL(backward_float32, float, 14);
  CAPS_CALL(backward_float64, double, 14);
  for (const auto& each : memory) std::fwrite(each.data(), 1, each.size(), stdout);
  return code;
}
