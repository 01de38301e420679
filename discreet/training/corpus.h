#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "discreet/admission/admission_gate.h"
#include "discreet/admission/resolver.h"
#include "discreet/admission/uses.h"
#include "discreet/base/cbor.h"
#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/training/corpus_ledger.h"
#include "discreet/training/corpus_terms.h"

namespace discreet::training {

// The contributions of a run: which records are admitted, which parameters each may reach, and how
// often.
//
// A record belongs to the contribution whose content anchor is the SHA-256 of its line of the file,
// without the line end; if several have that anchor, each matches one record, in the order of the
// descriptor file. Rejected contributions and records without a descriptor are removed from the
// data before anything is computed. Admission is public, and so is what it removes: it does not
// depend on how often a contribution was used.
//
// Uses. A record of a class with an every-pattern promise is reserved when a step samples it;
// without a use left it stays in the batch and contributes nothing (kNoRoute), and nothing public
// reveals that. For an amplified class the whole schedule of the run is reserved before the first
// step.
//
// Contested records. Anyone whose key the policy trusts can sign for a line they know. If more
// contributors signed for a line than there are such records, nobody can tell whose record it is
// and whether that person consents: these records stay in their batches and contribute nothing. As
// with uses, nothing public reveals that: it would tell what another contributor gave.
//
// Ledger. Before its first step, an epoch is recorded in the corpus's ledger, with all steps that
// the run plans, for every contribution of its classes (corpus_ledger.h). A contribution that is
// withdrawn or has ended by then contributes nothing from that epoch on; it keeps its place in the
// batches.
class Corpus {
 public:
  // Opens the files of the section, runs the gate, and removes records that are not admitted from
  // `data`. Throws kInvalidDpConfig, naming the key, if the section is incomplete or does not fit
  // the data (formats other than csv, data.holdout, data.private_bounds); as the readers and the
  // ledger do; and if no record is left.
  //   run   the name of the run in the ledger: public and unique
  //   note  where the run keeps the ledger's last note
  enum class Writes : std::uint8_t {
    kAll,      // ledger and uses
    kUses,     // the run is executed again: the ledger already contains it
    kNothing,  // the run is only planned: neither file is created or written
  };
  Corpus(const Config& config, data::Dataset& data, int threads, std::string run,
         std::filesystem::path note, Writes writes = Writes::kAll);

  // Resolves every admitted descriptor for a model. layout: with public modules marked. Throws as
  // resolve(); kInvalidDpConfig if a class is amplified for a sampler other than the run's.
  void resolve(const ModelLayout& layout, const mechanism::SamplingPlan& sampling);
  const mechanism::Routes& routes() const noexcept { return routes_; }

  // Throws kInvalidDpConfig or kPrivacyBudgetExceeded if the planned run of this mechanism exceeds
  // what its classes are promised. For a planned run, also if an amplified class has too few steps
  // left; otherwise begin() detects that.
  void require_room(const mechanism::Mechanism& mechanism);

  // The names under which uses are reserved from now on. A run whose steps are executed again on
  // other bits takes new names: its releases then occur twice, and count twice.
  struct Identity {
    Digest uses;                    // secret, for the store of uses
    std::string ledger;             // public, for the ledger
    std::uint64_t first_epoch = 0;  // the epoch of the run that is epoch 0 under this name
  };
  void take(Identity identity) { identity_ = std::move(identity); }
  // Reserves the schedule of amplified classes and the epoch of `step`. Throws
  // kPrivacyBudgetExceeded if a contribution has too few steps left; the reservations of the others
  // remain, and the same run finds them again.
  void begin(std::uint64_t step);
  // The steps that the ledger reserves together.
  std::uint64_t steps_per_epoch() const noexcept { return steps_per_epoch_; }
  // Reserves the epoch of a step in the ledger, unless it is already reserved.
  void enter_epoch(std::uint64_t step);
  // The classes of the records of a step of that epoch. Durable when it returns; repeating the step
  // finds its reservations.
  std::vector<std::uint32_t> reserve(std::uint64_t step, std::span<const std::uint64_t> records);

  CorpusLedger& ledger() noexcept { return *ledger_; }

  // The number of admitted contributions, including those withdrawn during this run: public. The
  // digest covers their descriptors' hashes in the order of the records, and which are contested if
  // any is: it is confidential then.
  std::uint64_t admitted() const noexcept { return hashes_.size(); }
  Digest admitted_hash() const;

  // For the trace: the ledger, and the run's current name in it. Public.
  cbor::Value ledger_name() const;
  // For the trace: policy, admissions, rejections with reasons, the classes and their promises.
  // Public.
  cbor::Value summary(const mechanism::Mechanism& mechanism) const;
  // Name, number of contributions, noise multiplier of the releases and bounds by block of each
  // class. Public.
  struct ClassBounds {
    std::string name;
    std::uint64_t contributions = 0;
    double noise_multiplier = 0;
    std::optional<double> flat_clip;
    std::vector<std::pair<std::string, double>> clip;  // by block
  };
  std::vector<ClassBounds> bounds(const mechanism::Mechanism& mechanism) const;
  std::string sentence() const;

 private:
  void admit(const Config& config, data::Dataset& data, int threads, const std::string& run);

  admission::Policy policy_;
  Injection injection_;
  admission::UseNoise noise_;
  std::map<std::string, std::uint64_t> refused_;    // by code
  std::vector<admission::Descriptor> descriptors_;  // one per record
  std::vector<Digest> hashes_;                      // of these
  std::vector<std::uint8_t> contested_;             // 1: more signed for it than gave one
  std::vector<std::uint32_t> class_of_;             // one per record: an index of the routes
  std::vector<CorpusClass> classes_;                // the distinct bounds among them
  mechanism::Routes routes_;
  std::unique_ptr<admission::UseStore> uses_;  // null: only planned, and no file exists
  bool plan_only_ = false;

  std::string run_;  // initial name in the ledger
  std::uint64_t at_ = 0;
  std::unique_ptr<CorpusLedger> ledger_;
  std::vector<ledger::Ledger::Contribution> admitted_;  // for the ledger
  std::vector<ledger::Terms> terms_;                    // of an epoch, by class; steps set later
  std::vector<admission::UseStore::Claim> claims_;      // the schedule of amplified classes
  Identity identity_;
  std::uint64_t steps_ = 0, steps_per_epoch_ = 1;  // of an epoch of the ledger
  std::optional<std::uint64_t> ledger_epoch_steps_;
  std::optional<std::uint64_t> epoch_;  // entered
  std::vector<std::uint8_t> absent_;    // one per record: excluded from the epoch
};

}  // namespace discreet::training
