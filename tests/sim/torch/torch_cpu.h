// What libtorch_cpu.so gives a memory tool to hold on to: the autograd engine's entry, the record
// functions (optimizer steps run in one), and a profiler that uses CUPTI as Kineto does. Real
// mangled names and layouts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace at {

class Tensor {
 public:
  void* impl = nullptr;
};

enum class RecordScope : uint8_t { FUNCTION = 0, BACKWARD_FUNCTION = 1, USER_SCOPE = 7 };
inline constexpr size_t kRecordScopes = 10;

struct ObserverContext {
  virtual ~ObserverContext() = default;
};

class RecordFunction {
 public:
  // Runs every global callback of the scope; the destructor runs their ends.
  RecordFunction(RecordScope scope, const char* name);
  ~RecordFunction();
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;

  const char* name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct RecordFunctionCallback {  // passed by value, 40 bytes
  std::unique_ptr<ObserverContext> (*start)(const RecordFunction&);
  void (*end)(const RecordFunction&, ObserverContext*);
  double sampling_prob;
  std::array<bool, kRecordScopes> scopes;
  bool needs_inputs;
  bool needs_outputs;
  bool needs_ids;
};
static_assert(sizeof(RecordFunctionCallback) == 40);

uint64_t addGlobalCallback(RecordFunctionCallback callback);
void removeCallback(uint64_t handle);

}  // namespace at

namespace torch::autograd {

struct Node {
  virtual ~Node() = default;
  virtual void apply() = 0;
};

struct Edge {
  std::shared_ptr<Node> function;
  uint32_t input_nr = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Applies the nodes in order on the device's own thread (no Python frames there) and waits; what
  // a node throws is thrown here. A call from inside a node runs where it is.
  virtual std::vector<at::Tensor> execute(const std::vector<Edge>& roots,
                                          const std::vector<at::Tensor>& inputs, bool keep_graph,
                                          bool create_graph, bool accumulate_grad,
                                          const std::vector<Edge>& outputs);
};

}  // namespace torch::autograd

namespace libkineto {

struct ProfileResult {
  bool cupti = false;  // whether CUPTI could be had
  uint64_t api_records = 0;
  uint64_t memory_records = 0;
  uint64_t unknown_buffers = 0;
};

// Says on stderr what the real one says when CUPTI belongs to somebody else.
void startTrace();
ProfileResult stopTrace();

}  // namespace libkineto
