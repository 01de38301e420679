#include "discreet/mechanism/clip/collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "discreet/base/error.h"

namespace discreet::mechanism {
namespace {

enum class Operation { kReduce, kGather, kBarrier };

// What the threads share. A round is one meeting of all ranks; the last to arrive opens it.
class Meeting {
 public:
  Meeting(int world, int ranks_per_node)
      : world_(static_cast<std::size_t>(world)),
        per_node_(ranks_per_node < 1 ? world_ : static_cast<std::size_t>(ranks_per_node)),
        offers_(world_),
        ended_by_others_(world_) {}

  std::size_t world() const { return world_; }
  std::size_t per_node() const { return per_node_; }
  // The values offered in the open round; valid between meet() and part().
  std::span<double> offer(std::size_t rank) const { return offers_[rank].values; }

  void meet(std::size_t rank, Operation operation, std::span<double> values) {
    std::unique_lock lock(mutex_);
    check(rank);
    offers_[rank] = {operation, values};
    const auto differs = [&](const Offer& offer) {
      return offer.operation != operation || offer.values.size() != values.size();
    };
    if (arrived_ + 1 == world_ && std::any_of(offers_.begin(), offers_.end(), differs))
      fail(Error(ErrorCode::kInvalidInput, "Collective",
                 "the ranks did not call the same operation with arrays of equal length"));
    arrive(rank, lock);
  }

  // A meeting that does not touch the offers, because slower ranks still read them.
  void part(std::size_t rank) {
    std::unique_lock lock(mutex_);
    arrive(rank, lock);
  }

  // Whether a rank has ended because of another one; known when all have left.
  bool ended_by_others(std::size_t rank) const { return ended_by_others_[rank] != 0; }

  // A rank has ended, with an error or without.
  void leave(const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    ++left_;
    if (!failure) {
      if (arrived_ > 0) check_that_all_come();
      return;
    }
    if (error_) return;
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      fail(Error(error.code(), error.op(), error.sentence()));
    } catch (const std::exception& error) {
      fail(Error(ErrorCode::kInvalidInput, "Collective",
                 fmt::format("another rank failed: {}", error.what())));
    } catch (...) {
      fail(Error(ErrorCode::kInvalidInput, "Collective", "another rank failed"));
    }
  }

 private:
  struct Offer {
    Operation operation = Operation::kBarrier;
    std::span<double> values;
  };

  void arrive(std::size_t rank, std::unique_lock<std::mutex>& lock) {
    check(rank);
    if (++arrived_ == world_) {
      arrived_ = 0;
      ++round_;
      met_.notify_all();
    } else {
      check_that_all_come();
      const std::uint64_t mine = round_;
      met_.wait(lock, [&] { return round_ != mine || error_; });
      if (round_ == mine) check(rank);  // a round that was opened stays valid
    }
  }
  void check(std::size_t rank) {
    if (!error_) return;
    ended_by_others_[rank] = 1;
    throw *error_;
  }
  void check_that_all_come() {
    if (left_ > 0 && !error_)
      fail(Error(ErrorCode::kInvalidInput, "Collective",
                 "a rank returned while others were waiting for it; all ranks must call the same "
                 "operations"));
  }
  void fail(Error error) {
    error_.emplace(std::move(error));
    met_.notify_all();
  }

  const std::size_t world_, per_node_;
  std::vector<Offer> offers_;
  std::vector<char> ended_by_others_;
  std::mutex mutex_;
  std::condition_variable met_;
  std::size_t arrived_ = 0, left_ = 0;
  std::uint64_t round_ = 0;
  std::optional<Error> error_;
};

class ThreadCollective final : public Collective {
 public:
  ThreadCollective(Meeting& meeting, std::size_t rank) : meeting_(meeting), rank_(rank) {}

  int rank() const noexcept override { return static_cast<int>(rank_); }
  int world_size() const noexcept override { return static_cast<int>(meeting_.world()); }

  // Every rank sums its own share of the coordinates for all.
  void all_reduce_sum(std::span<double> values) override {
    meeting_.meet(rank_, Operation::kReduce, values);
    const std::size_t world = meeting_.world(), end = values.size() * (rank_ + 1) / world;
    for (std::size_t i = values.size() * rank_ / world; i < end; ++i) {
      const double total = sum_of(i);
      for (std::size_t r = 0; r < world; ++r) meeting_.offer(r)[i] = total;
    }
    meeting_.part(rank_);
  }

  std::vector<double> all_gather(std::span<const double> values) override {
    std::vector<double> own(values.begin(), values.end());
    // Nothing may fail between the two meetings: others read `own` until the second.
    std::vector<double> all(own.size() * meeting_.world());
    meeting_.meet(rank_, Operation::kGather, own);
    for (std::size_t r = 0; r < meeting_.world(); ++r)
      std::copy_n(meeting_.offer(r).data(), own.size(), all.data() + r * own.size());
    meeting_.part(rank_);
    return all;
  }

  void barrier() override { meeting_.meet(rank_, Operation::kBarrier, {}); }

 private:
  double sum_of(std::size_t i) const {
    const std::size_t world = meeting_.world(), per_node = meeting_.per_node();
    double total = 0;
    for (std::size_t first = 0; first < world; first += per_node) {
      double node = meeting_.offer(first)[i];
      for (std::size_t r = first + 1; r < std::min(world, first + per_node); ++r)
        node += meeting_.offer(r)[i];
      total = first == 0 ? node : total + node;
    }
    return total;
  }

  Meeting& meeting_;
  const std::size_t rank_;
};

}  // namespace

void run_ranks(int world, const std::function<void(Collective&)>& f, int ranks_per_node) {
  if (world < 1)
    invalid_input("run_ranks", "the number of ranks is {}; it must be at least 1", world);
  Meeting meeting(world, ranks_per_node);
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
  const auto run = [&](std::size_t rank) {
    ThreadCollective collective(meeting, rank);
    try {
      f(collective);
    } catch (...) {
      failures[rank] = std::current_exception();
    }
    meeting.leave(failures[rank]);
  };
  {
    std::vector<std::jthread> others;
    others.reserve(failures.size() - 1);
    try {
      for (std::size_t rank = 1; rank < failures.size(); ++rank) others.emplace_back(run, rank);
    } catch (...) {  // no more threads: those that were started must not wait for the rest
      meeting.leave(std::current_exception());
      throw;
    }
    run(0);
  }
  for (const bool own : {true, false})
    for (std::size_t rank = 0; rank < failures.size(); ++rank)
      if (failures[rank] && meeting.ended_by_others(rank) != own)
        std::rethrow_exception(failures[rank]);
}

}  // namespace discreet::mechanism
