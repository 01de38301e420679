#include "cli/unlearn/experiment.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/numbers.h"
#include "cli/print.h"
#include "cli/unlearn/rows.h"
#include "cli/unlearn/unlearn.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/numerics/sum.h"
#include "discreet/report/page_assets.h"
#include "discreet/report/plot.h"
#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/online/drift.h"
#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::cli {
namespace {

using namespace unlearning;
using nlohmann::json;
using report::Plot;

struct Options {
  std::string data, events = "20000", dimension = "10", seed = "1", drift_at, out = "unlearn.html",
                    log, gamma_learn = "0.1", gamma_priv = "2", epsilon = "1", delta = "1e-5",
                    lambda = "0.1", calibration = "500";
  RowNames names;
  bool json = false;
};

constexpr double kRadius = 5;
constexpr std::size_t kPoints = 40;  // measured along the way
constexpr std::uint64_t kWindow = 200;

// Records on a sphere whose label follows a direction; it turns at `drift_at`.
std::vector<Row> generated(std::size_t count, std::size_t d, std::uint64_t seed,
                           std::size_t drift_at) {
  std::vector<Row> rows(count);
  std::vector<double> x(count * d), noise(count);
  NoiseSource source = NoiseSource::insecure(seed);
  source.add(1, x);
  source.add(0.2, noise);
  for (std::size_t i = 0; i < count; ++i) {
    Row& row = rows[i];
    row.x.assign(&x[i * d], &x[i * d] + d);
    const double norm = numerics::norm_l2(row.x);
    for (double& v : row.x) v /= norm;
    const double z = row.x[0] - row.x[d > 1 ? 1 : 0] / 2 + noise[i] / std::sqrt(double(d));
    row.y = (z > 0) == (i < drift_at) ? 1 : -1;
  }
  return rows;
}

struct Point {
  std::uint64_t events;
  json metrics;
  double accuracy, retrained, sigma;
};
struct Course {
  std::string name;
  std::vector<Point> points;
  std::vector<Plot::Point> losses;  // mean of each window
  std::uint64_t drifts = 0;
};

ErmOptions retraining(const Options& o, std::size_t d, std::size_t count) {
  ErmOptions e;
  e.dimension = d;
  e.lambda = parse_number("--lambda", o.lambda) / 10;
  e.N = e.n_max = std::max<std::size_t>(1, count);
  return e;
}

double accuracy(std::span<const double> w, std::span<const Row> rows) {
  const auto right = std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
    return numerics::dot(w, row.x) * row.y > 0;
  });
  return static_cast<double>(right) / static_cast<double>(rows.size());
}

Course course(const Options& o, Accounting accounting, Guarantee guarantee, std::string name,
              std::span<const Row> stream, std::span<const Row> test) {
  const std::size_t d = stream[0].x.size();
  OdometerOptions options;
  options.eps_total = parse_number("--epsilon", o.epsilon);
  options.delta_total = parse_number("--delta", o.delta);
  options.lambda = parse_number("--lambda", o.lambda);
  options.gamma_learn = parse_number("--gamma-learn", o.gamma_learn);
  options.gamma_priv = parse_number("--gamma-priv", o.gamma_priv);
  options.T = stream.size();
  options.accounting = accounting;
  options.guarantee = guarantee;
  options.enforced = {Loss::kLogistic, d, options.lambda, 1, kRadius, 1, 1};
  const std::uint64_t calibration = parse_count("--calibration", o.calibration);
  MemoryPair pair(d, std::make_shared<PrivacyOdometer>(options), Calibrator({0.95, 10.0}),
                  Loss::kLogistic, NoiseSource::insecure(parse_count("--seed", o.seed)));

  // Regret is against the best fixed parameters of the whole stream.
  ErmEngine best(retraining(o, d, stream.size()), NoiseSource::insecure(1));
  for (RecordId id = 0; id < stream.size(); ++id) best.insert(id, stream[id].x, stream[id].y);
  best.refine();
  std::vector<double> comparator(best.w().begin(), best.w().end());
  const double norm = numerics::norm_l2(comparator);
  for (double& v : comparator) v *= std::min(1.0, kRadius / norm);
  pair.set_comparator(comparator);

  // What retraining over the live records would give, kept up with them.
  ErmEngine retrained(retraining(o, d, stream.size()), NoiseSource::insecure(1));
  DriftDetector drift({2, kWindow, 1, 0}, nullptr, NoiseSource::insecure(2));
  Course out{std::move(name), {}, {}, 0};
  std::size_t oldest = 0;
  std::uint64_t calibrated = 0, since_delete = 0;
  double window_sum = 0;
  bool solved = false, finalized_before = false;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    const Row& row = stream[i];
    const double loss = loss_value(Loss::kLogistic, row.y, numerics::dot(pair.theta(), row.x));
    if (pair.phase() == Phase::kCalibration) {
      pair.calibrate_step(row.x, row.y);
      if (++calibrated >= calibration) {
        pair.finalize_calibration(options.gamma_learn);
        calibrated = 0;
      }
    } else {
      pair.insert(row.x, row.y);
    }
    retrained.insert(i, row.x, row.y);
    if (pair.phase() == Phase::kInterleaving && !solved) {
      finalized_before
          ? pair.odometer().recalibrate(pair.stats(), options.T, pair.inserts_seen())
          : pair.odometer().finalize_with(pair.stats(), options.T, pair.inserts_seen());
      solved = finalized_before = true;
    }
    if (solved && ++since_delete >= 10 && pair.odometer().ready_to_delete()) {
      since_delete = 0;
      pair.erase(stream[oldest].x, stream[oldest].y);
      const RecordId id = oldest++;
      retrained.erase({&id, 1});
    }
    window_sum += std::min(loss, 2.0);
    if (const auto ended = drift.observe(loss)) {
      out.losses.push_back({static_cast<double>(i + 1), window_sum / kWindow});
      window_sum = 0;
      if (*ended && solved && accounting != Accounting::kGdp) {
        ++out.drifts;
        pair.revert_to_calibration();
        solved = false;
      }
    }
    if ((i + 1) * kPoints / stream.size() != i * kPoints / stream.size()) {
      Point point{pair.events_seen(), json::object(), accuracy(pair.theta(), test), 0,
                  pair.odometer().sigma_step()};
      for (const auto& [key, value] : pair.metrics()) point.metrics[key] = metric_json(value);
      retrained.refine();
      point.retrained = accuracy(retrained.w(), test);
      point.metrics["accuracy_test"] = point.accuracy;
      point.metrics["accuracy_test_retrained"] = point.retrained;
      point.metrics["drifts"] = out.drifts;
      point.metrics["experiment"] = out.name;
      out.points.push_back(std::move(point));
    }
  }
  return out;
}

Plot::Curve curve(std::string name, const Course& course,
                  const std::function<double(const Point&)>& y) {
  Plot::Curve out{std::move(name), {}};
  for (const Point& p : course.points) {
    const double value = y(p);
    if (std::isfinite(value)) {
      out.points.push_back({static_cast<double>(p.events), std::max(0.0, value)});
    }
  }
  return out;
}

double of(const Point& p, const char* key) {
  return p.metrics.at(key).is_null() ? NAN : p.metrics.at(key).get<double>();
}

std::string figure(Plot plot, std::string_view caption) {
  plot.width = 420;
  return fmt::format("<figure>{}<figcaption><p>{}</p></figcaption></figure>\n", report::svg(plot),
                     caption);
}

std::string page(const std::vector<Course>& courses, const std::string& about) {
  std::string body;
  for (const Course& c : courses) {
    const Point& last = c.points.back();
    body += fmt::format("<section><h2>{}</h2>\n", report::escape(c.name));
    body +=
        figure({"Average regret",
                "Average regret and its bound over the events",
                "events",
                "average regret",
                {curve("measured", c, [](const Point& p) { return of(p, "avg_regret_empirical"); }),
                 curve("bound", c, [](const Point& p) { return of(p, "avg_regret_bound"); })},
                {},
                std::nullopt},
               "Cumulative regret over events, against the best fixed parameters; its bound.");
    body += figure({"Deletes left",
                    "Deletes the budgets still afford",
                    "events",
                    "deletes left",
                    {curve("left", c, [](const Point& p) { return of(p, "capacity_remaining"); })},
                    {},
                    std::nullopt},
                   "Capacity that remains; 0 before the warm-up ends and after exhaustion.");
    body += figure({"Noise of a delete",
                    "Standard deviation of a delete's noise",
                    "events",
                    "sigma",
                    {curve("sigma", c, [](const Point& p) { return p.sigma; })},
                    {},
                    std::nullopt},
                   "The standard deviation planned for a delete.");
    body += figure({"Accuracy",
                    "Test accuracy against retraining",
                    "events",
                    "accuracy",
                    {curve("online", c, [](const Point& p) { return p.accuracy; }),
                     curve("retrained", c, [](const Point& p) { return p.retrained; })},
                    {},
                    1.0},
                   "On held-out records; retrained: certified minimisation over the live records.");
    body += figure(
        {"Drift",
         "Mean loss of each window",
         "inserts",
         "loss",
         {{"window", c.losses}},
         {{1, "drift", false}},
         std::nullopt},
        fmt::format("{} windows above the line sent the learner back to calibration.", c.drifts));
    body += "<div class=\"panel\"><table class=\"facts\"><caption>At the end</caption><tbody>\n";
    for (const auto& [key, value] : last.metrics.items()) {
      body +=
          fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", report::escape(key),
                      report::escape(value.is_string() ? value.get<std::string>() : value.dump()));
    }
    body += "</tbody></table></div></section>\n";
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Deletion capacity</title><style>{}</style></head>\n<body>"
      "<div class=\"banner\"><div>Confidential: every number here depends on the records.</div>"
      "</div><main><header><h1>Deletion capacity</h1><p>{}</p></header>\n{}</main></body></html>\n",
      report::kStyle, report::escape(about), body);
}

void experiment(const Options& o) {
  std::vector<Row> rows;
  std::string about;
  if (o.data.empty()) {
    const std::size_t events = parse_count("--events", o.events);
    const std::size_t d = parse_count("--dimension", o.dimension);
    if (events < 1000 || d < 1) {
      throw Error(ErrorCode::kInvalidInput, "unlearn experiment",
                  "--events is at least 1000 and --dimension at least 1");
    }
    const std::size_t drift_at =
        o.drift_at.empty() ? SIZE_MAX : parse_count("--drift-at", o.drift_at);
    rows = generated(events, d, parse_count("--seed", o.seed), drift_at);
    about = fmt::format("{} generated records of dimension {}, seed {}.", events, d, o.seed);
  } else {
    rows = read_rows(o.data, o.names);
    if (rows.size() < 1000) {
      throw Error(ErrorCode::kInvalidInput, "unlearn experiment",
                  fmt::format("'{}' has {} records; give at least 1000", o.data, rows.size()));
    }
    about = fmt::format("{} records of {}.", rows.size(), o.data);
  }
  about += fmt::format(
      " Ten inserts to one delete, oldest first; epsilon {}, delta {}, lambda {}, "
      "gamma_learn {}, gamma_priv {}. A tenth of the records is held out.",
      o.epsilon, o.delta, o.lambda, o.gamma_learn, o.gamma_priv);
  const std::size_t held_out = rows.size() / 10;
  // Every tenth record: before and after a drift alike.
  std::vector<Row> stream, test;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (i % 10 == 9 && test.size() < held_out ? test : stream).push_back(std::move(rows[i]));
  }
  const std::vector<Course> courses = {
      course(o, Accounting::kSpecification, Guarantee::kPerRecord,
             "The specification's formulas: not certified", stream, test),
      course(o, Accounting::kZcdp, Guarantee::kPerRecord, "Certified, per record", stream, test),
      course(o, Accounting::kZcdp, Guarantee::kSetLevel, "Certified, all deleted together", stream,
             test)};
  write_atomically(o.out, bytes_of(page(courses, about)), Access::kOwner);
  if (!o.log.empty()) {
    std::string lines;
    for (const Course& c : courses) {
      for (const Point& p : c.points) lines += p.metrics.dump() + "\n";
    }
    write_atomically(o.log, bytes_of(lines), Access::kOwner);
  }
  json out = json::array();
  for (const Course& c : courses) out.push_back(c.points.back().metrics);
  if (o.json) {
    print("{}\n", json{{"report", o.out}, {"results", out}}.dump());
    return;
  }
  // Null is infinite: no bound of the regret is known after a recalibration that follows deletes.
  const auto brief = [](const json& value) {
    return value.is_null() ? std::string("none") : fmt::format("{:.4g}", value.get<double>());
  };
  print("{:<46} {:>8} {:>8} {:>10} {:>10} {:>9} {:>9}\n", "", "m", "deletes", "regret", "bound",
        "accuracy", "retrained");
  for (const auto& m : out) {
    print("{:<46} {:>8} {:>8} {:>10} {:>10} {:>9} {:>9}\n", m["experiment"].get<std::string>(),
          m["m_theory"].get<std::uint64_t>(), m["deletes_seen"].get<std::uint64_t>(),
          brief(m["avg_regret_empirical"]), brief(m["avg_regret_bound"]), brief(m["accuracy_test"]),
          brief(m["accuracy_test_retrained"]));
  }
  print("report: {} (confidential)\n", o.out);
}

}  // namespace

json metric_json(const unlearning::MemoryPair::Metric& metric) {
  return std::visit(
      [](const auto& v) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
          if (!std::isfinite(v)) return nullptr;
        }
        return v;
      },
      metric);
}

void add_unlearn_experiment(Command& command) {
  auto o = std::make_shared<Options>();
  command.argument("DATA", o->data, "Records with labels -1 and 1; generated if not given")
      .reads_file();
  command.option("--events", "N", o->events, "Number of generated records");
  command.option("--dimension", "N", o->dimension, "Dimension of generated records");
  command.option("--seed", "SEED", o->seed,
                 "Seed of records and noise: a simulation, which protects nobody");
  command.option("--drift-at", "N", o->drift_at, "Record at which the labels flip");
  command.option("--gamma-learn", "X", o->gamma_learn, "Average regret that N* aims at");
  command.option("--gamma-priv", "X", o->gamma_priv, "Average regret that the capacity aims at");
  command.option("--epsilon", "EPSILON", o->epsilon, "Budget");
  command.option("--delta", "DELTA", o->delta, "Budget");
  command.option("--lambda", "X", o->lambda, "Regularisation");
  command.option("--calibration", "N", o->calibration, "Inserts of each calibration");
  o->names.add_options(command);
  command.option("--out", "FILE", o->out, "Report").writes_file();
  command.option("--log", "FILE", o->log, "Write every metric along the way, as JSON lines")
      .writes_file();
  command.json(o->json);
  command.action([o] { experiment(*o); });
}

}  // namespace discreet::cli
