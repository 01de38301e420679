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
  std::uint64_t n_max = 1;    // largest number of live records; inserts beyond it are refused
  double R = 1;               // bound of a record's norm, by scaling
  double Y = 1;               // bound of |y|, by clamping (squared loss)
  double tau = 1e-9;          // > 0: gradient norm to which every release is solved
  double sigma = 1e-3;        // > 0: noise of a release
  double eps_total = 1;       // > 0
  double delta_total = 1e-5;  // in (0, 1)
  Accounting accounting = Accounting::kZcdp;  // not kSpecification
  // kPerRecord: releases after the record's delete. kSetLevel: releases after the last delete, all
  // deleted records together. kTranscript: every release, before and after, one record; requests
  // may depend on releases.
  Guarantee guarantee = Guarantee::kPerRecord;
};

// Empirical risk minimisation that keeps the live records:
//   F(w) = (1/N) sum f_z(w) + (lambda/2) |w|^2
// is minimised until |grad F| <= tau, proven with all rounding errors, and released under noise.
// A release differs from one of a model retrained without the deleted records to the same tau by at
// most 2 tau/lambda before noise: that is what the noise covers. Deletes are unlimited; releases
// are counted. The engine's own state (w in full precision, the records) is not protected.
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
  // Removes the rows and takes one Newton step for all of them; `refine` certifies.
  void erase(std::span<const RecordId> ids) override;
  // refine, charge, noise.
  Release publish() override;

  // Not the factor of the Hessian, which is computed again. Without records, the parameters are
  // left out too: they are found again from zero.
  Bytes save(Records records) const override;
  static ErmEngine restore(ByteView bytes, NoiseSource noise);

  // Solves until the gradient norm is certified to be at most tau. Newton steps with a factor that
  // is kept while each step at least quarters the norm. Throws kAccountantDivergence when rounding
  // does not permit tau; the last parameters stay.
  void refine();

  // An upper bound of |grad F(w)| at the present parameters, rounding included. Data-dependent:
  // confidential.
  double gradient_bound() const;

  // One Newton step with the Hessian at hand, and a bound of |grad F| after it, proven without
  // another pass over the records. Nothing, and no step, before the first erase after a refine.
  // Data-dependent: confidential. refine uses the same bound.
  std::optional<double> newton_step();

  // What a release's noise covers, and its cost; both from the configuration alone, rounded up.
  double sensitivity() const noexcept { return sensitivity_; }
  double rho_release() const noexcept { return rho_release_; }
  std::uint64_t releases_left() const;
  const RhoBudget& budget() const noexcept { return budget_; }
  const ErmOptions& options() const noexcept { return o_; }
  // Noise from here on; of a key that was never used.
  void use_noise(NoiseSource noise) { noise_ = std::move(noise); }

  std::span<const double> w() const noexcept { return w_; }  // confidential
  // Forgets the parameters, keeps the records: the next refine retrains from zero.
  void forget_parameters() noexcept;

 private:
  // Returns the bound of the exact gradient's norm; error: that of rounding alone.
  double gradient(std::span<const double> w, std::span<double> out, double& error) const;
  void anchor();                                       // the Hessian at w_, anew
  void gather_gram();                                  // sum x x' / N, anew
  void change_curvature(std::size_t at, double sign);  // takes row `at` in or out
  void take_inserts();                                 // of the records inserted since
  void refactor();
  std::vector<double> moved() const;  // from the anchor
  void note_move();
  void note_passes(std::uint64_t passes);  // that a solution took
  bool can_certify_steps() const;
  // At least v' Gram v; norm: at least |v|.
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
  std::vector<double> factor_;      // its Cholesky factor; empty when there is none
  std::vector<double> gram_;        // sum x x' / N; empty when there is none
  std::vector<double> anchor_;      // where the Hessian was computed
  std::vector<double> pending_;     // gradients at w_ of what was deleted, less those inserted, / N
  std::vector<RecordId> inserted_;  // and not yet in the Hessian
  double radius_ = 0, shift_ = 0;
  std::uint64_t anchored_rows_ = 0, gathered_rows_ = 0;
  std::uint64_t curvature_changes_ = 0, gram_changes_ = 0;
  bool refactor_due_ = false;
  std::uint64_t quick_ = 0, passes_more_ = 0;  // solutions in one pass; further passes of others
  bool stale_ = false;                         // a new Hessian is worth its cost
};

}  // namespace discreet::unlearning
