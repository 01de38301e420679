#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

// Python's global lock, given up while the core works.
//
// A daemon thread may ask for the lock while the interpreter ends. Up to Python 3.13 the
// interpreter then ends the thread by pthread_exit(), which unwinds its frames. nanobind's frames
// are noexcept, so that the unwinding would end in std::terminate and the process in SIGABRT. The
// unwinding is caught here instead, and the thread waits for the process to end, as Python 3.14 has
// it. Checking first whether the interpreter is ending would not help: it may start to end while
// the thread waits.
namespace discreet::python {

template <class Function>
auto or_wait_for_exit(Function take_lock) {
  try {
    return take_lock();
  } catch (...) {  // forced unwinding: the functions of Python throw nothing
    for (;;) pause();
  }
}

// Other threads may run while this lives.
class Unlocked {
 public:
  Unlocked() noexcept : thread_(PyEval_SaveThread()) {}
  ~Unlocked() {
    or_wait_for_exit([this] { PyEval_RestoreThread(thread_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* thread_;
};

// Holds the lock while this lives: for calls of Python from the core.
class Locked {
 public:
  Locked() : before_(or_wait_for_exit([] { return PyGILState_Ensure(); })) {}
  ~Locked() { PyGILState_Release(before_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE before_;
};

}  // namespace discreet::python
