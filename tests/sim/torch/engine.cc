#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tests/sim/torch/torch_cpu.h"

namespace torch::autograd {
namespace {

struct GraphTask {
  const std::vector<Edge>* roots;
  std::exception_ptr error;
  bool done = false;
};

// The thread that runs backward nodes, as the engine keeps one for each device.
class DeviceThread {
 public:
  static DeviceThread& get() {
    static auto* const thread = new DeviceThread;
    return *thread;
  }

  void run(GraphTask* task) {
    std::unique_lock lock(mutex_);
    if (!started_) {
      started_ = true;
      std::thread([this] { thread_main(); }).detach();
    }
    changed_.wait(lock, [this] { return task_ == nullptr; });
    task_ = task;
    changed_.notify_all();
    changed_.wait(lock, [task] { return task->done; });
  }

  static void apply(GraphTask* task) {
    try {
      for (const Edge& edge : *task->roots) edge.function->apply();
    } catch (...) {
      task->error = std::current_exception();
    }
  }

  static thread_local bool inside;

 private:
  void thread_main() {
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    inside = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return task_ != nullptr; });
      GraphTask* task = task_;
      lock.unlock();
      apply(task);
      lock.lock();
      task_ = nullptr;
      task->done = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  GraphTask* task_ = nullptr;
  bool started_ = false;
};

thread_local bool DeviceThread::inside = false;

}  // namespace

std::vector<at::Tensor> Engine::execute(const std::vector<Edge>& roots,
                                        const std::vector<at::Tensor>& inputs, bool, bool, bool,
                                        const std::vector<Edge>&) {
  GraphTask task = {&roots, nullptr, false};
  if (DeviceThread::inside) {
    DeviceThread::apply(&task);
  } else {
    DeviceThread::get().run(&task);
  }
  if (task.error) std::rethrow_exception(task.error);
  return inputs;
}

}  // namespace torch::autograd
