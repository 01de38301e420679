#include "discreet/unlearning/service/verification.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "discreet/numerics/sum.h"
#include "discreet/unlearning/require_impl.h"
#include "discreet/unlearning/service/attack.h"
#include "discreet/unlearning/service/learner_impl.h"

namespace discreet::unlearning {
namespace {

using Vector = std::vector<double>;

Vector copy(std::span<const double> v) { return {v.begin(), v.end()}; }

// The parameters before noise.
Vector parameters(Learner& learner) {
  if (auto* exact = std::get_if<ExactEngine>(&learner)) return exact->publish().parameters;
  if (auto* erm = std::get_if<ErmEngine>(&learner)) {
    erm->refine();
    return copy(erm->w());
  }
  return copy(std::get<MemoryPair>(learner).theta());
}

// The vectors by which the learner scores these rows.
std::vector<Row> as_learned(const Service& service, std::vector<Row> rows) {
  for (Row& row : rows) row.x = service.as_learned(row.x);
  return rows;
}
std::vector<Row> given(const Service& service, std::vector<Row> rows) {
  for (Row& row : rows) row.x = service.mapped(row.x);
  return as_learned(service, std::move(rows));
}

double distance(const Vector& a, const Vector& b) {
  Vector difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return numerics::norm_l2(difference);
}

double score(const Vector& w, std::span<const Row> rows, bool classes) {
  double sum = 0;
  for (const Row& row : rows) {
    const double z = numerics::dot(w, row.x);
    sum += classes ? (z * row.y > 0 ? 1 : 0) : (z - row.y) * (z - row.y);
  }
  return sum / static_cast<double>(rows.size());
}

std::optional<Scores> scores(const Vector& served, const Vector& retrained,
                             std::span<const Row> rows) {
  if (rows.empty()) return std::nullopt;
  const bool classes =
      std::all_of(rows.begin(), rows.end(), [](const Row& r) { return r.y == 1 || r.y == -1; });
  return Scores{classes ? "accuracy" : "mean squared error", score(served, rows, classes),
                score(retrained, rows, classes)};
}

// As large as a record may be, in a direction of its own.
Row canary(std::size_t dimension, double R, std::uint64_t seed) {
  Row row{"canary", Vector(dimension), 1};
  NoiseSource::insecure(seed).fork("canary").add(1, row.x);
  const double norm = numerics::norm_l2(row.x);
  for (double& v : row.x) v *= R / norm;
  return row;
}

// Two worlds, before and after noise: `deleted` had the canary, `never` did not.
struct Worlds {
  Vector deleted, never;  // before noise
  Vector kept;            // the canary not deleted
  std::function<Vector(bool had, std::uint64_t run)> release;
  std::optional<double> bound, epsilon;
  double delta = 0;
};

void learn_all(const Service& service, Learner& learner, std::span<const Row> rows) {
  RecordId id = 0;
  for (const Row& row : rows) service.learn(learner, id++, row.x, row.y);
}

Worlds exact_worlds(const Service& service, std::span<const Row> rows, const Row& z) {
  Learner with = service.fresh("verify"), without = service.fresh("verify");
  const RecordId id = rows.size();
  auto& engine = std::get<ExactEngine>(with);
  engine.insert(id, z.x, z.y);
  learn_all(service, with, rows);
  learn_all(service, without, rows);
  Worlds w;
  w.kept = parameters(with);
  engine.erase({&id, 1});
  w.deleted = parameters(with);
  w.never = parameters(without);
  w.bound = 2 * engine.options().tolerance;
  w.epsilon = 0;
  w.release = [deleted = w.deleted, never = w.never](bool had, std::uint64_t) {
    return had ? deleted : never;
  };
  return w;
}

Worlds erm_worlds(const Service& service, std::span<const Row> rows, const Row& z,
                  std::uint64_t seed) {
  Learner with = service.fresh("verify"), without = service.fresh("verify");
  const RecordId id = rows.size();
  learn_all(service, with, rows);
  learn_all(service, without, rows);
  auto& engine = std::get<ErmEngine>(with);
  engine.insert(id, z.x, z.y);
  Worlds w;
  w.kept = parameters(with);
  engine.erase({&id, 1});
  w.deleted = parameters(with);
  w.never = parameters(without);
  const ErmOptions& o = engine.options();
  w.bound = 2 * o.tau / o.lambda;
  w.epsilon = o.eps_total;
  w.delta = o.delta_total;
  w.release = [deleted = w.deleted, never = w.never, sigma = o.sigma, seed](bool had,
                                                                            std::uint64_t run) {
    Vector out = had ? deleted : never;
    NoiseSource::insecure(seed + 2 * run + (had ? 1 : 0)).add(sigma, out);
    return out;
  };
  return w;
}

// The same slot holds the canary or a record of zeros, whose step is empty.
std::optional<Worlds> stream_worlds(const Service& service, std::span<const Row> rows, const Row& z,
                                    std::uint64_t seed) {
  Worlds w;
  const Row null{"canary", Vector(z.x.size()), 1};
  Bytes saved[2];
  for (const bool had : {false, true}) {
    const Row& slot = had ? z : null;
    Learner learner = service.fresh("verify");
    for (std::size_t i = 0; i <= rows.size(); ++i) {
      const Row& row = i == rows.size() / 2 ? slot : rows[i < rows.size() / 2 ? i : i - 1];
      service.learn(learner, i, row.x, row.y);
    }
    auto& pair = std::get<MemoryPair>(learner);
    if (!pair.odometer().ready_to_delete()) return std::nullopt;
    (had ? w.deleted : w.never) = copy(pair.theta());
    w.bound = pair.sensitivity();
    if (pair.odometer().certified()) w.epsilon = pair.odometer().options().eps_total;
    w.delta = pair.odometer().options().delta_total;
    saved[had] = pair.save(Records::kLeftOut);
  }
  w.kept = w.deleted;
  w.release = [with = saved[1], without = saved[0], z, null, seed](bool had, std::uint64_t run) {
    const Row& slot = had ? z : null;
    MemoryPair pair = MemoryPair::restore(had ? with : without,
                                          NoiseSource::insecure(seed + 2 * run + (had ? 1 : 0)));
    pair.adopt(slot.x, slot.y);
    pair.erase(slot.x, slot.y);
    return copy(pair.theta());
  };
  return w;
}

// Which side of the middle between the two worlds a release is on: fixed before any run.
double attacked(const Worlds& w, const VerificationOptions& o, const Vector& had,
                const Vector& never, const std::function<Vector(bool, std::uint64_t)>& release) {
  Vector direction(had.size());
  for (std::size_t i = 0; i < had.size(); ++i) direction[i] = had[i] - never[i];
  const double middle = (numerics::dot(direction, had) + numerics::dot(direction, never)) / 2;
  AttackCounts counts{0, 0, o.attack_runs};
  for (std::uint64_t run = 0; run < o.attack_runs; ++run) {
    counts.hits_deleted += numerics::dot(direction, release(true, run)) > middle;
    counts.hits_never += numerics::dot(direction, release(false, run)) > middle;
  }
  return epsilon_lower_bound(counts, w.delta, 1 - o.confidence);
}

}  // namespace

Verification verify(const Service& service, const VerificationOptions& o) {
  require_probability("verify", "confidence", o.confidence);
  if (o.attack_runs < 100 || o.attack_runs > 10'000'000) {
    refuse("verify", "attack_runs", static_cast<double>(o.attack_runs), "100 to 10^7");
  }
  Verification out;
  const Learner& learner = service.learner();
  const std::vector<Row> all = service.rows();
  if (all.empty()) {
    invalid_input("verify", "the model has no records; insert some first");
  }

  Learner served = service.fresh("verify"), retrained = service.fresh("verify");
  learn_all(service, retrained, all);
  const bool stream = std::holds_alternative<MemoryPair>(learner);
  if (stream) {
    served.emplace<MemoryPair>(MemoryPair::restore(
        std::get<MemoryPair>(learner).save(Records::kLeftOut), NoiseSource::insecure(o.seed)));
  } else if (const auto* erm = std::get_if<ErmEngine>(&learner)) {
    served.emplace<ErmEngine>(
        ErmEngine::restore(erm->save(Records::kInside), NoiseSource::insecure(o.seed)));
  } else {
    const auto& exact = std::get<ExactEngine>(learner);
    served.emplace<ExactEngine>(ExactEngine::restore(exact.save(Records::kInside)));
    out.same_state = exact.state_digest() == std::get<ExactEngine>(retrained).state_digest();
  }
  const Vector w = parameters(served), anew = parameters(retrained);
  const std::vector<Row> retained = as_learned(service, all), test = given(service, o.test);
  out.retained = scores(w, anew, retained);
  out.forgotten = scores(w, anew, given(service, o.forgotten));
  out.test = scores(w, anew, test);
  std::size_t differ = 0;
  for (const auto* rows : {&retained, &test}) {
    for (const Row& row : *rows) {
      differ += (numerics::dot(w, row.x) > 0) != (numerics::dot(anew, row.x) > 0);
    }
  }
  out.disagreement = static_cast<double>(differ) / static_cast<double>(all.size() + test.size());

  const std::span<const Row> some(all.data(), std::min<std::size_t>(all.size(), o.most_records));
  const Row z = canary(all[0].x.size(), norm_bound(learner), o.seed);
  std::optional<Worlds> worlds;
  if (std::holds_alternative<ExactEngine>(learner)) {
    worlds = exact_worlds(service, some, z);
  } else if (std::holds_alternative<ErmEngine>(learner)) {
    worlds = erm_worlds(service, some, z, o.seed);
  } else {
    worlds = stream_worlds(service, some, z, o.seed);
  }
  if (!worlds) {
    out.notes.emplace_back("with these records, every delete retrains");
    out.holds = true;
    return out;
  }
  out.distance = distance(worlds->deleted, worlds->never);
  out.bound = worlds->bound;
  out.epsilon_certified = worlds->epsilon;
  out.epsilon_lower_bound = attacked(*worlds, o, worlds->deleted, worlds->never, worlds->release);
  out.control_lower_bound =
      attacked(*worlds, o, worlds->kept, worlds->never,
               [&](bool had, std::uint64_t) { return had ? worlds->kept : worlds->never; });
  if (!out.bound) out.notes.emplace_back("not certified: there is no bound to compare with");
  // A certificate beyond what so many runs can show is not reached by any attack.
  const double ceiling =
      epsilon_lower_bound({o.attack_runs, 0, o.attack_runs}, worlds->delta, 1 - o.confidence);
  const double certified = out.epsilon_certified.value_or(0);
  const bool shows = certified < ceiling;
  if (!shows) {
    out.notes.push_back(
        fmt::format("{} runs show at most epsilon {:.2f}; the control needs more runs",
                    o.attack_runs, ceiling));
  }
  out.holds = out.same_state.value_or(true) && (!out.bound || out.distance <= *out.bound) &&
              (!out.epsilon_certified || out.epsilon_lower_bound <= certified) &&
              (!shows || out.control_lower_bound > certified);
  return out;
}

}  // namespace discreet::unlearning
