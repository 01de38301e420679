#pragma once

#include <optional>
#include <unordered_map>

#include "discreet/unlearning/capacity/odometer.h"
#include "discreet/unlearning/engines/engine.h"
#include "discreet/unlearning/noise_source.h"

namespace discreet::unlearning {

struct ErmOptions {
  Loss loss = Loss::kLogistic;
  std::size_t dimension = 1;  // 1 to 4096
  double lambda = 1e-3;       // > 0
  std::uint64_t N = 1;        // the public divisor of the loss, >= 1; never the row count
  std::uint64_t n_max = 1;    // maximum number of live records; further inserts are rejected
  double R = 1;               // bound of a record's norm, by scaling
  double Y = 1;               // bound of |y|, by clamping (squared loss)
  double tau = 1e-9;          // > 0: gradient norm that every release reaches
  double sigma = 1e-3;        // > 0: noise of a release
  double eps_total = 1;       // > 0
  double delta_total = 1e-5;  // in (0, 1)
  Accounting accounting = Accounting::kZcdp;  // not kSpecification
  // kPerRecord: releases after the record's delete. kSetLevel: releases after the last delete, all
  // deleted records together. kTranscript: every release, before and after the delete, for one
  // record; requests may depend on releases.
  Guarantee guarantee = Guarantee::kPerRecord;
};

// Empirical risk minimisation that keeps the live records:
//   F(w) = (1/N) sum f_z(w) + (lambda/2) |w|^2
// is minimised until |grad F| <= tau, proven including all rounding errors, and released with
// noise. Before noise, a release differs by at most 2 tau/lambda from that of a model retrained to
// the same tau without the deleted records; the noise covers this distance. Deletes are unlimited;
// releases are counted. The engine's own state (w in full precision, the records) is not protected.
// Proof: erm_engine.md
class ErmEngine final : public Engine {
 public:
  // Throws kInvalidInput for an option out of its range.
  ErmEngine(ErmOptions options, NoiseSource noise);

  std::string_view name() const noexcept override { return "erm"; }
  std::size_t dimension() const noexcept override { return o_.dimension; }
  std::uint64_t live() const noexcept override { return row_ids_.size(); }
  bool holds(RecordId id) const noexcept override { return ids_.count(id) > 0; }
  void insert(RecordId id, std::span<const double> x, double y) override;
  // Removes the rows and makes one Newton step for all of them; `refine` certifies the result.
  void erase(std::span<const RecordId> ids) override;
  // refine, charge, noise.
  Release publish() override;

  // Without the factor of the Hessian, which is recomputed. Without records, the parameters are
  // omitted too: they are recomputed from zero.
  Bytes save(Records records) const override;
  static ErmEngine restore(ByteView bytes, NoiseSource noise);

  // Iterates until the gradient norm is certified to be at most tau. Uses Newton steps with a
  // factor that is kept while each step reduces the norm at least to a quarter. Throws
  // kAccountantDivergence if rounding prevents tau; the last parameters are kept.
  void refine();

  // An upper bound of |grad F(w)| at the current parameters, including rounding. Data-dependent:
  // confidential.
  double gradient_bound() const;

  // Makes one Newton step with the available Hessian and returns a bound of |grad F| after it,
  // proven without another pass over the records. Before the first erase after a refine, makes no
  // step and returns nothing. Data-dependent: confidential. refine uses the same bound.
  std::optional<double> newton_step();

  // The distance that the noise of a release covers, and the cost of a release; both depend only on
  // the configuration and are rounded up.
  double sensitivity() const noexcept { return sensitivity_; }
  double rho_release() const noexcept { return rho_release_; }
  std::uint64_t releases_left() const;
  const RhoBudget& budget() const noexcept { return budget_; }
  const ErmOptions& options() const noexcept { return o_; }
  // Sets the source of further noise; its key must never have been used.
  void use_noise(NoiseSource noise) { noise_ = std::move(noise); }

  std::span<const double> w() const noexcept { return w_; }  // confidential
  // Discards the parameters, keeps the records: the next refine retrains from zero.
  void forget_parameters() noexcept;

 private:
  // Returns a bound of the exact gradient's norm; error: the part due to rounding.
  double gradient(std::span<const double> w, std::span<double> out, double& error) const;
  void anchor();                                       // recomputes the Hessian at w_
  void gather_gram();                                  // recomputes sum x x' / N
  void change_curvature(std::size_t at, double sign);  // adds or removes row `at`
  void take_inserts();                                 // adds the records inserted since
  void refactor();
  std::vector<double> moved() const;  // distance from the anchor
  void note_move();
  void note_passes(std::uint64_t passes);  // number of passes of a solution
  bool can_certify_steps() const;
  // An upper bound of v' Gram v; norm: an upper bound of |v|.
  double spread(std::span<const double> v, double norm) const;
  // A bound of |grad F(w_ - step)|, where g is the computed gradient at w_ and error its bound.
  double bound_after(std::span<const double> g, double error, std::span<const double> step) const;
  void remove_row(RecordId id);

  ErmOptions o_;
  NoiseSource noise_;
  RhoBudget budget_;
  double sensitivity_, rho_release_;
  std::vector<double> rows_, labels_;
  std::vector<RecordId> row_ids_;
  std::unordered_map<RecordId, std::size_t> ids_;
  std::vector<double> w_;
  // The Hessian: each record's term at some w since the anchor, within radius_ of it.
  std::vector<double> hessian_;
  std::vector<double> factor_;      // its Cholesky factor; empty if not computed
  std::vector<double> gram_;        // sum x x' / N; empty if not computed
  std::vector<double> anchor_;      // where the Hessian was computed
  std::vector<double> pending_;     // gradients at w_ of deleted minus inserted records, / N
  std::vector<RecordId> inserted_;  // not yet in the Hessian
  double radius_ = 0, shift_ = 0;
  std::uint64_t anchored_rows_ = 0, gathered_rows_ = 0;
  std::uint64_t curvature_changes_ = 0, gram_changes_ = 0;
  bool refactor_due_ = false;
  std::uint64_t quick_ = 0, passes_more_ = 0;  // solutions in one pass; further passes of others
  bool stale_ = false;                         // a new Hessian is worth its cost
};

}  // namespace discreet::unlearning
