#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/data/open.h"
#include "discreet/training/model.h"

namespace discreet::cli {
namespace {

struct Options {
  std::string run, data, labels, threads, on_bad_row = "reject";
  bool json = false;
};

// The names of the classes, or their numbers where none are declared.
std::string class_name(const data::Dataset& data, std::size_t k) {
  return k < data.class_names.size() ? data.class_names[k] : std::to_string(k);
}

void predict(const Options& options) {
  const training::TrainedModel model = training::load_model(options.run);
  const data::Dataset data = data::open_records(
      model.config.data, model.released_bounds, options.data, options.labels,
      options.on_bad_row == "skip" ? data::BadRow::kSkip : data::BadRow::kRefuse);
  const std::vector<float> outputs = training::predict(model, data, parse_threads(options.threads));
  const std::size_t width = model.network.shape().sizes.back();
  const bool classifies = model.network.shape().classifies;
  // A number was learned in [-1, 1]; it is printed in the declared bounds.
  const std::vector<double>& bounds = model.config.data.label_bounds;
  nlohmann::json predictions = nlohmann::json::array();
  std::size_t correct = 0;
  auto skipped = data.skipped.begin();
  const auto pass_skipped = [&] {  // the place of a row that was left out stays empty
    for (; skipped != data.skipped.end() && *skipped == predictions.size(); ++skipped)
      predictions.push_back(nullptr);
  };
  for (std::size_t row = 0; row < data.rows; ++row) {
    pass_skipped();
    const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(row * width);
    if (!classifies) {
      predictions.push_back(bounds.size() == 2 ? bounds[0] + (static_cast<double>(*first) + 1) / 2 *
                                                                 (bounds[1] - bounds[0])
                                               : static_cast<double>(*first));
      continue;
    }
    const auto best = static_cast<std::size_t>(
        std::max_element(first, first + static_cast<std::ptrdiff_t>(width)) - first);
    if (!data.label.empty() && data.label[row] == best) ++correct;
    predictions.push_back(class_name(data, best));
  }
  pass_skipped();
  const bool scored = classifies && !data.label.empty() && data.rows != 0;
  const double accuracy =
      static_cast<double>(correct) / static_cast<double>(std::max<std::size_t>(1, data.rows));
  if (options.json) {
    nlohmann::json out = {{"predictions", predictions},
                          {"skipped", data.skipped.size()},
                          {"accuracy", scored ? nlohmann::json(accuracy) : nlohmann::json()}};
    if (scored) out["accuracy_note"] = "these records have no guarantee";
    print("{}\n", out.dump());
    return;
  }
  for (const auto& value : predictions)
    print("{}\n", value.is_string() ? value.get<std::string>()
                  : value.is_null() ? std::string()
                                    : value.dump());
  if (!data.skipped.empty())
    print(stderr, "{} rows could not be read; their lines are empty\n", data.skipped.size());
  if (scored)
    print(stderr, "accuracy {:.1f}% of {} records, which have no guarantee\n", 100 * accuracy,
          data.rows);
}

}  // namespace

void add_predict(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("RUN", options->run, "Directory of the run").required().reads_folder();
  command.argument("DATA", options->data, "Records, in the format of the run's data")
      .required()
      .reads_file();
  command
      .option("--labels", "FILE", options->labels,
              "Labels of the records, to compute the accuracy (idx, npy)")
      .reads_file();
  command.option("--threads", "N", options->threads,
                 "Threads, which do not change the result; one per processor if not given");
  command
      .option("--on-bad-row", "WHAT", options->on_bad_row,
              "Reject a file with an unreadable row, or leave its line empty")
      .choices({"reject", "skip"});
  command.json(options->json);
  command.action([options] { predict(*options); });
}

}  // namespace discreet::cli
