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
#include "discreet/mechanism/apply.h"
#include "discreet/training/dataset.h"

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
class Corpus {
 public:
  // Opens the files of the section, admits, and takes the records that are not admitted out of
  // `data`. Throws kInvalidDpConfig, naming the key, for a section that lacks something or does not
  // fit the data: other formats than csv, data.holdout, data.private_bounds; as the readers; and if
  // no record is left.
  Corpus(const mechanism::Config& config, Dataset& data, int threads);

  // Resolves every admitted descriptor for a model. layout: with public modules marked. Throws as
  // resolve(); kInvalidDpConfig if a class is amplified for another sampler than the run's.
  void resolve(const mechanism::ModelLayout& layout, const mechanism::SamplingPlan& sampling);
  const mechanism::Routes& routes() const noexcept { return routes_; }

  // The identity under which uses are reserved from now on: of the run, and of its lineage. Reserves
  // the schedule of amplified classes: kPrivacyBudgetExceeded if a contribution has too few steps
  // left. What the others had is reserved all the same, and found again by the same run.
  void begin(const Digest& run, std::uint64_t steps);
  // The classes of the records of a step. Durable when it returns; the same step again finds what
  // it reserved.
  std::vector<std::uint32_t> reserve(std::uint64_t step, std::span<const std::uint64_t> records);

  // For the trace: policy, what was admitted and refused and why, the classes and what each was
  // promised. Public.
  cbor::Value summary(const mechanism::Mechanism& mechanism) const;
  std::string sentence() const;

 private:
  admission::Policy policy_;
  mechanism::Injection injection_;
  admission::UseNoise noise_;
  std::map<std::string, std::uint64_t> refused_;    // by code
  std::vector<admission::Descriptor> descriptors_;  // one per record
  std::vector<Digest> hashes_;                      // of these
  std::vector<std::uint32_t> class_of_;             // one per record: an index of the routes
  std::vector<admission::Resolution> resolutions_;  // one per class
  std::vector<std::string> names_;                  // of the data class of each
  mechanism::Routes routes_;
  std::unique_ptr<admission::UseStore> uses_;
  Digest run_{};
};

}  // namespace discreet::training
