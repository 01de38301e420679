#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "discreet/admission/gate.h"
#include "discreet/admission/resolver.h"
#include "discreet/admission/uses.h"
#include "discreet/base/cbor.h"
#include "discreet/data/dataset.h"
#include "discreet/mechanism/step/apply.h"
#include "discreet/training/corpus_ledger.h"
#include "discreet/training/corpus_terms.h"

namespace discreet::training {

// The contributions of a run: which records are admitted, where each may reach, and how often.
//
// A record is the contribution whose content anchor is the SHA-256 of its line of the file, without
// the line's end; of several with that anchor each serves one record, in the order of the file of
// descriptors. What the gate refuses, and a record without descriptor, is taken out of the data
// before anything is computed from it. Admission is public, and so is what is taken out: it does
// not ask how often a contribution was used.
//
// Uses. A record of a class with the promise for every pattern is reserved when a step samples it;
// without a use left it stays in the batch and contributes nothing (kNoRoute): nothing public tells
// that. Of an amplified class the whole schedule of the run is reserved before the first step.
//
// Ledger. Before an epoch's first step it is in the corpus's ledger, with all steps that the run
// plans, for every contribution of its classes (corpus_ledger.h). A contribution that was
// withdrawn, or has ended, by then contributes nothing from that epoch on; it keeps its place in
// the batches.
class Corpus {
 public:
  // Opens the files of the section, admits, and takes the records that are not admitted out of
  // `data`. Throws kInvalidDpConfig, naming the key, for a section that lacks something or does not
  // fit the data: other formats than csv, data.holdout, data.private_bounds; as the readers and the
  // ledger; and if no record is left.
  //   run   the name of the run in the ledger: public, of this run and no other
  //   note  where the run keeps the ledger's last note
  enum class Writes : std::uint8_t {
    kAll,      // ledger and uses
    kUses,     // the run is executed again: the ledger has it already
    kNothing,  // the run is planned only: neither file is made or written
  };
  Corpus(const Config& config, data::Dataset& data, int threads, std::string run,
         std::filesystem::path note, Writes writes = Writes::kAll);

  // Resolves every admitted descriptor for a model. layout: with public modules marked. Throws as
  // resolve(); kInvalidDpConfig if a class is amplified for another sampler than the run's.
  void resolve(const ModelLayout& layout, const mechanism::SamplingPlan& sampling);
  const mechanism::Routes& routes() const noexcept { return routes_; }

  // Throws kInvalidDpConfig or kPrivacyBudgetExceeded if the planned run of this mechanism does not
  // fit what its classes are promised. Planned only: also if an amplified class has too few steps
  // left; else begin() finds that.
  void require_room(const mechanism::Mechanism& mechanism);

  // Under which name uses are reserved from now on. A run whose steps are executed again on other
  // bits takes new ones: what was released is then there twice, and counts twice.
  struct Identity {
    Digest uses;                    // secret, for the store of uses
    std::string ledger;             // public, for the ledger
    std::uint64_t first_epoch = 0;  // the epoch of the run that is epoch 0 under this name
  };
  void take(Identity identity) { identity_ = std::move(identity); }
  // Reserves the schedule of amplified classes: kPrivacyBudgetExceeded if a contribution has too
  // few steps left (what the others had is reserved all the same, and found again by the same run);
  // and the epoch of `step`.
  void begin(std::uint64_t step);
  // Reserves the epoch of a step in the ledger; nothing if it is there.
  void enter_epoch(std::uint64_t step);
  // The classes of the records of a step of that epoch. Durable when it returns; the same step
  // again finds what it reserved.
  std::vector<std::uint32_t> reserve(std::uint64_t step, std::span<const std::uint64_t> records);

  CorpusLedger& ledger() noexcept { return *ledger_; }

  // How many contributions were admitted, withdrawn ones of this run among them, and the digest of
  // their descriptors' hashes in the order of the records. Public.
  std::uint64_t admitted() const noexcept { return hashes_.size(); }
  Digest admitted_hash() const;

  // For the trace: the ledger, and the run's name there from now on. Public.
  cbor::Value ledger_name() const;
  // For the trace: policy, what was admitted and refused and why, the classes and what each was
  // promised. Public.
  cbor::Value summary(const mechanism::Mechanism& mechanism) const;
  // Of each class: its name, how many contributions it has, the noise multiplier of its releases
  // and its bounds by block. Public.
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
  std::vector<std::uint32_t> class_of_;             // one per record: an index of the routes
  std::vector<CorpusClass> classes_;                // the distinct bounds among them
  mechanism::Routes routes_;
  std::unique_ptr<admission::UseStore> uses_;  // null: planned only, and there is none yet
  bool plan_only_ = false;

  std::string run_;  // in the ledger, at its beginning
  std::uint64_t at_ = 0;
  std::unique_ptr<CorpusLedger> ledger_;
  std::vector<ledger::Ledger::Contribution> admitted_;  // for the ledger
  std::vector<ledger::Terms> terms_;                    // of an epoch, by class; steps filled in
  std::vector<admission::UseStore::Claim> claims_;      // the schedule of amplified classes
  Identity identity_;
  std::uint64_t steps_ = 0, steps_per_epoch_ = 1;
  std::optional<std::uint64_t> epoch_;  // entered
  std::vector<std::uint8_t> absent_;    // one per record: takes no part in the epoch
};

}  // namespace discreet::training
