#include "discreet/numerics/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <thread>

namespace discreet::numerics {
namespace {

// Longer than the pauses between the loops of a training step, shorter than anyone notices.
constexpr auto kPatience = std::chrono::microseconds(50);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using State = std::uint32_t;

// Returns when `state` is no longer `old`: spins first, then sleeps until it is notified.
void wait_for_change(const std::atomic<State>& state, State old) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    for (int k = 0; k < 32; ++k) {
      if (state.load(std::memory_order_acquire) != old) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < until);
  state.wait(old, std::memory_order_acquire);
}

struct Job {
  void (*task)(void*, std::size_t) noexcept;
  void* context;
  std::fenv_t rounding;  // the caller's
};

// A thread that does one share of each job it is offered. The thread that changes kOffered does the
// share: the worker changes it to kRunning, the caller back to kIdle. `job` and `share` are written
// while kIdle, by the one caller that has the pool, and read by the worker after it has changed the
// state: the exchange orders the two.
class Worker {
 public:
  void offer(const Job& job, std::size_t share) {
    job_ = &job;
    share_ = share;
    state_.store(kOffered, std::memory_order_release);
    state_.notify_one();
  }

  // True if the share had not started; the caller must then do it. Otherwise waits until it is
  // done.
  bool take_back() {
    State offered = kOffered;
    if (state_.compare_exchange_strong(offered, kIdle, std::memory_order_acquire)) return true;
    while (state_.load(std::memory_order_acquire) == kRunning) wait_for_change(state_, kRunning);
    return false;
  }

  [[noreturn]] void work() {
    for (;;) {
      State offered = kOffered;
      if (!state_.compare_exchange_strong(offered, kRunning, std::memory_order_acquire)) {
        wait_for_change(state_, kIdle);
        continue;
      }
      std::fesetenv(&job_->rounding);
      job_->task(job_->context, share_);
      state_.store(kIdle, std::memory_order_release);
      state_.notify_one();
    }
  }

 private:
  static constexpr State kIdle = 0, kOffered = 1, kRunning = 2;
  alignas(64) std::atomic<State> state_ = kIdle;
  const Job* job_ = nullptr;
  std::size_t share_ = 0;
};

// The workers of the process; never destroyed, so that they may be used and sleep on while other
// static objects are.
class Pool {
 public:
  // At most one caller has the pool at a time.
  bool try_acquire() { return !taken_.exchange(true, std::memory_order_acquire); }
  void release() { taken_.store(false, std::memory_order_release); }

  // As many workers as there are, up to `wanted`; starts what is missing if the system allows it.
  std::size_t provide(std::size_t wanted) {
    while (workers_.size() < wanted && start_one()) {
    }
    return workers_.size() < wanted ? workers_.size() : wanted;
  }
  Worker& operator[](std::size_t i) { return workers_[i]; }

 private:
  bool start_one() {
    // A new thread has the mask of the one that starts it: signals are for the threads of others.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const std::size_t had = workers_.size();
    try {
      Worker& worker = workers_.emplace_back();
      std::thread([&worker] { worker.work(); }).detach();
    } catch (const std::exception&) {  // no memory, no thread
      if (workers_.size() > had) workers_.pop_back();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return workers_.size() > had;
  }

  std::atomic<bool> taken_ = false;
  std::deque<Worker> workers_;  // whose addresses stay
};

std::atomic<Pool*> the_pool = nullptr;

// The threads of a parent do not exist in its child.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr, std::memory_order_relaxed); });

Pool& pool() {
  if (Pool* const made = the_pool.load(std::memory_order_acquire)) return *made;
  auto* const fresh = new Pool;
  Pool* made = nullptr;
  if (the_pool.compare_exchange_strong(made, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *made;
}

}  // namespace

void run_shares(std::size_t shares, void (*task)(void*, std::size_t) noexcept, void* context) {
  Pool& workers = pool();
  if (shares <= 1 || !workers.try_acquire()) {
    for (std::size_t share = 0; share < shares; ++share) task(context, share);
    return;
  }
  Job job{task, context, {}};
  std::fegetenv(&job.rounding);
  const std::size_t helpers = workers.provide(shares - 1);
  for (std::size_t i = 0; i < helpers; ++i) workers[i].offer(job, i + 1);
  task(context, 0);
  for (std::size_t share = helpers + 1; share < shares; ++share) task(context, share);
  for (std::size_t i = 0; i < helpers; ++i)
    if (workers[i].take_back()) task(context, i + 1);
  workers.release();
}

}  // namespace discreet::numerics
