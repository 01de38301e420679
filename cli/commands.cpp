#include "cli/commands.h"

namespace discreet::cli {
namespace {

struct Row {
  const char* name;
  const char* summary;
  const char* example;
  void (*add)(Command& command);
};

constexpr Row kTrain[] = {
    {"init", "Write a commented configuration to start from.",
     "discreet init train.yaml --data people.csv --label income --classes 'low,high' --records "
     "5000\n"
     "  discreet init train.yaml --preset regulated_fair\n"
     "  discreet init every-key.yaml --all",
     add_init},
    {"check", "Check a configuration, and forecast what it will spend.",
     "discreet check discreet.yaml\n"
     "  discreet check discreet.yaml --set noise_multiplier=1.2 --set clipping.norm=0.5 --json\n"
     "  discreet check discreet.yaml --resolved\n"
     "  discreet check --schema > discreet.schema.json",
     add_check},
    {"train", "Train a private model from a configuration; continue with --resume.",
     "discreet train discreet.yaml\n"
     "  discreet train discreet.yaml --out churn --set noise_multiplier=1.2 --threads 4\n"
     "  discreet train discreet.yaml --out churn --resume --json",
     add_train},
    {"predict", "Predict with a trained model, one line per record.",
     "discreet predict discreet-run new.csv\n  discreet predict discreet-run new.csv --json",
     add_predict},
    {"demo", "Train a private model of the embedded handwritten digits.",
     "discreet demo\n  discreet demo --out digits --threads 2 --json\n  discreet demo --governed",
     add_demo},
};

constexpr Row kPlan[] = {
    {"plan", "Find the noise that a privacy target needs, or the steps that a noise affords.",
     "discreet plan --target-epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size 256 "
     "--epochs 60\n"
     "  discreet plan --target-epsilon 8 --delta 1e-6 --sampling-rate 0.01 --steps 2000 --json\n"
     "  discreet plan --target-epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size 256 "
     "--epochs 60 \\\n"
     "    --group-size 4 --plot epsilon.svg\n"
     "  discreet plan --target-epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size 256 \\\n"
     "    --noise-multiplier 1.1\n"
     "  discreet plan --policy policy.yaml --config train.yaml --target-epsilon 3",
     add_plan},
    {"account", "Certify the epsilon of a training schedule, or of several runs together.",
     "discreet account --sampling-rate 0.01 --noise-multiplier 1 --steps 1000 --delta 1e-5\n"
     "  discreet account --sampling none --noise-multiplier 5 --steps 10 --epsilon 2 --json\n"
     "  discreet account --sampling balls_and_bins --batches-per-epoch 235 --steps 2350 \\\n"
     "    --noise-multiplier 1.1 --delta 1e-5\n"
     "  discreet account --dataset-size 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1 "
     "\\\n"
     "    --delta 1e-5 --plot epsilon.svg\n"
     "  discreet account --schedule schedule.jsonl --delta 1e-6\n"
     "  discreet account RUN OTHER-RUN",
     add_account},
};

constexpr Row kContribute[] = {
    {"keygen", "Create, rotate or revoke a signing key.",
     "discreet keygen hospital\n"
     "  discreet keygen hospital-2 --rotate hospital.key --statements statements.jsonl\n"
     "  discreet keygen --revoke 00112233445566778899aabbccddeeff --key hospital.key \\\n"
     "    --statements statements.jsonl",
     add_keygen},
    {"policy", "Write the policy of a new corpus, for you to edit.",
     "discreet policy policy.yaml --corpus clinic --class clinical --trust hospital.pub",
     add_policy},
    {"attest", "Sign a contribution's descriptor: its class, clip norm, noise and uses.",
     "discreet attest --key hospital.key --contributor patient-1 --class clinical --payload "
     "record.txt \\\n"
     "    --clip-norm 0.5 --noise-multiplier 1 --occurrences 20 --not-before 2026-01-01 \\\n"
     "    --not-after 2027-01-01 --corpus clinic\n"
     "  discreet attest --key hospital.key --policy policy.yaml --data train.csv --out "
     "anchors.jsonl \\\n"
     "    --contributor-column patient --class clinical --days 365\n"
     "  discreet attest --key hospital.key --policy policy.yaml --batch rows.csv --out "
     "anchors.jsonl",
     add_attest},
    {"admit",
     "Decide which contributions a corpus policy admits, with a reason for each rejection.",
     "discreet admit policy.yaml anchors.jsonl\n"
     "  discreet admit policy.yaml anchors.jsonl --at 2026-11-16 --statements statements.jsonl "
     "--json",
     add_admit},
    {"explain", "Explain how a contribution's noise and layers follow from its descriptor.",
     "discreet explain record.txt.anchor.jsonl --policy policy.yaml\n"
     "  discreet explain anchors.jsonl --policy policy.yaml --layout model.json --hash 3fa9 --json",
     add_explain},
    {"withdraw", "Sign, record or verify the withdrawal of a contribution.",
     "discreet withdraw HASH --origin example.com/corpus --key me.key --reason moved \\\n"
     "    --events events.jsonl\n"
     "  discreet withdraw --contributor patient-17 --descriptors anchors.jsonl --ledger ledger.db "
     "\\\n"
     "    --key ledger.key --bundles .\n"
     "  discreet withdraw --ledger ledger.db --key ledger.key --events events.jsonl --bundles .\n"
     "  discreet withdraw --verify bundle.json --public-key ledger.pub",
     add_withdraw},
};

constexpr Row kAudit[] = {
    {"ledger", "Verify, read and prove a ledger.",
     "discreet ledger verify ledger.db --public-key ledger.pub\n"
     "  discreet ledger show ledger.db --limit 5\n"
     "  discreet ledger export ledger.db --receipts receipts.jsonl --key ledger.key",
     add_ledger},
    {"report", "Write a self-contained HTML report of a run.",
     "discreet report RUN\n"
     "  discreet report RUN --public --out report.html\n"
     "  discreet report RUN --json",
     add_report},
    {"trace", "Show what happened in a run, step by step; confidential.",
     "discreet trace discreet-run\n  discreet trace discreet-run --csv > steps.csv", add_trace},
    {"replay", "Repeat a run from its configuration, data and key, and compare every bit.",
     "discreet replay discreet-run\n  discreet replay discreet-run --threads 2 --json", add_replay},
    {"selfcheck", "Check this build against published values.",
     "discreet selfcheck\n  discreet selfcheck --json", add_selfcheck},
    {"operators", "List the specification's operators and their implementations.",
     "discreet operators\n  discreet operators --json", add_operators},
};

constexpr Row kServe[] = {
    {"release", "Sign the manifest of a finished run's model.",
     "discreet release RUN --key release.key\n"
     "  discreet release RUN --key release.key --ledger-key ledger.key --scopes scopes.json \\\n"
     "    --max-age-days 30",
     add_release},
    {"gate", "Decide whether a released model may answer a request.",
     "discreet gate RUN/release.json request.json --public-key release.pub --ledger ledger.db\n"
     "  discreet gate RUN/release.json --public-key release.pub",
     add_gate},
    {"unlearn", "Maintain a model whose records can be deleted, with receipts.",
     "discreet unlearn init churn --engine exact --dimension 54\n"
     "  discreet unlearn insert churn records.csv\n"
     "  discreet unlearn delete churn --subject alice --receipts receipts.jsonl\n"
     "  discreet unlearn publish churn\n"
     "  discreet unlearn verify churn",
     add_unlearn},
};

constexpr Row kShell[] = {
    {"completion", "Print a script that completes commands and options in your shell.",
     "source <(discreet completion bash)\n"
     "  discreet completion zsh > ~/.zfunc/_discreet\n"
     "  discreet completion fish > ~/.config/fish/completions/discreet.fish",
     add_completion},
    {"manual", "Write the manual page of every command.",
     "discreet manual /usr/local/share/man/man1", add_manual},
};

template <std::size_t N>
void add_group(Command& root, const char* heading, const Row (&rows)[N]) {
  root.group(heading);
  for (const Row& row : rows) row.add(root.subcommand(row.name, row.summary, row.example));
}

}  // namespace

Command all_commands() {
  Command root("discreet", "discreet: private training you can prove.",
               "discreet demo\n  discreet account --help");
  root.flag(
      "--version", [] {}, "Print the version");
  add_group(root, "Train", kTrain);
  add_group(root, "Plan", kPlan);
  add_group(root, "Contribute", kContribute);
  add_group(root, "Audit", kAudit);
  add_group(root, "Serve", kServe);
  add_group(root, "Shell", kShell);
  return root;
}

}  // namespace discreet::cli
