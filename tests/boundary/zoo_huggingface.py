"""Architectures of Hugging Face from tiny configurations: no weights are fetched.

All are accepted and exact but those of REJECTED.
"""

import torch
import transformers as hf
from oracle import Case, ramp_losses
from torch.utils.data import default_collate

WORDS, LENGTH, WIDTH = 40, 6, 16
TEXT = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CAUSAL = TEXT | {"use_cache": False}
GROUPED = CAUSAL | {"num_key_value_heads": 1}
DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IMAGE = {"image_size": 8, "patch_size": 4, "num_channels": 3, "hidden_size": WIDTH, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 24}

# name: (class, configuration class, its options, inputs)
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", dict(vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=2, n_positions=32,
             resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2, use_cache=False), "ids"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "ids"),
    "llama_with_mask": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "masked"),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED, "ids"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, "ids"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 8}, "ids"),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GROUPED | {"head_dim": 8}, "ids"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 8}, "ids"),
    "phi": ("PhiForCausalLM", "PhiConfig", CAUSAL | {"resid_pdrop": 0.0, "embd_pdrop": 0.0}, "ids"),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED | {"resid_pdrop": 0.0, "embd_pdrop": 0.0}, "ids"),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", GROUPED, "ids"),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", GROUPED | {"attention_dropout": 0.0}, "ids"),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", CAUSAL | {"hidden_dropout": 0.0, "attention_dropout": 0.0}, "ids"),
    "opt": ("OPTForCausalLM", "OPTConfig", dict(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, ffn_dim=24,
            num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=WIDTH, dropout=0.0, use_cache=False,
            pad_token_id=0, bos_token_id=1, eos_token_id=2), "ids"),
    "bert": ("BertForSequenceClassification", "BertConfig", TEXT | DRY, "masked"),
    "bert_masked_language": ("BertForMaskedLM", "BertConfig", TEXT | DRY, "ids"),
    "bert_padded": ("BertForSequenceClassification", "BertConfig", TEXT | DRY, "padded"),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", dict(
        vocab_size=WORDS, dim=WIDTH, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=32, dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0, pad_token_id=0), "masked"),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", TEXT | DRY, "masked"),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", TEXT | DRY | {"embedding_size": 12}, "masked"),
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", TEXT | DRY | {
        "embedding_size": 8, "classifier_dropout_prob": 0.0}, "masked"),
    "deberta_v2": ("DebertaV2ForSequenceClassification", "DebertaV2Config", TEXT | DRY | {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "pooler_dropout": 0.0, "pooler_hidden_size": WIDTH},
        "masked"),
    "t5": ("T5ForConditionalGeneration", "T5Config", dict(vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=24, num_layers=2,
           num_heads=2, dropout_rate=0.0, use_cache=False, pad_token_id=0, decoder_start_token_id=0), "pair"),
    "bart": ("BartForConditionalGeneration", "BartConfig", dict(
        vocab_size=WORDS, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=32, dropout=0.0,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1), "pair"),
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGE | DRY, "images"),
    "deit": ("DeiTForImageClassification", "DeiTConfig", IMAGE | DRY, "images"),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", IMAGE, "images"),
    "siglip_vision": ("SiglipVisionModel", "SiglipVisionConfig", IMAGE, "images"),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", IMAGE | DRY, "images"),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", dict(
        num_channels=3, patch_size=2, hidden_sizes=[8, 8], depths=[1, 1], num_stages=2, image_size=8), "images"),
    "swin": ("SwinForImageClassification", "SwinConfig", dict(
        image_size=8, patch_size=2, embed_dim=8, depths=[1], num_heads=[2], window_size=2, drop_path_rate=0.0), "images"),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", dict(
        vocab_size=WORDS, num_mel_bins=4, d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_source_positions=6, max_target_positions=16,
        dropout=0.0, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1), "sound"),
    "mamba": ("MambaForCausalLM", "MambaConfig", dict(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=1, state_size=4,
              use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2), "ids"),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 2, "num_experts_per_tok": 1}, "ids"),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", dict(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic"), "images"),
    # Their own loss: averaged over the tokens of the batch, or over its records.
    "llama_with_its_loss": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "labels"),
    "gpt2_with_its_loss": ("GPT2LMHeadModel", "GPT2Config", dict(vocab_size=WORDS, n_embd=WIDTH, n_layer=1, n_head=2,
                           n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False), "labels"),
    "t5_with_its_loss": ("T5ForConditionalGeneration", "T5Config", dict(
        vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0, use_cache=False,
        pad_token_id=0, decoder_start_token_id=0), "labels"),
    # With their own dropout.
    "gpt2_with_dropout": ("GPT2LMHeadModel", "GPT2Config", dict(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=32, use_cache=False), "ids", True),
    "bert_with_dropout": ("BertForSequenceClassification", "BertConfig", TEXT | {"num_hidden_layers": 1}, "masked", True),
}
# What must be rejected, with a part of the sentence.
REJECTED = {"resnet": "BatchNorm2d", "llama_with_its_loss": "", "gpt2_with_its_loss": "", "t5_with_its_loss": ""}


def _records(kind):
    def records(n):
        g = torch.Generator().manual_seed(11)
        ids = torch.randint(3, WORDS, (n, LENGTH), generator=g)
        ids[-1] = WORDS - 1
        out = []
        for i in range(n):
            length = LENGTH if kind not in ("padded", "labels") else 2 + i % (LENGTH - 1)
            mask = (torch.arange(LENGTH) < length).long()
            x = {"ids": lambda: {"input_ids": ids[i]},
                 "masked": lambda: {"input_ids": ids[i], "attention_mask": mask},
                 "padded": lambda: {"input_ids": ids[i] * mask, "attention_mask": mask},
                 "labels": lambda: {"input_ids": ids[i] * mask, "attention_mask": mask,
                                    "labels": ids[i].masked_fill(mask == 0, -100)},
                 "pair": lambda: {"input_ids": ids[i], "attention_mask": mask, "decoder_input_ids": ids[i].flip(0)},
                 "images": lambda: {"pixel_values": (1 + 4 * (i == n - 1)) * torch.randn(3, 8, 8, generator=g)},
                 "sound": lambda: {"input_features": torch.randn(4, 12, generator=g), "decoder_input_ids": ids[i]}}[kind]()
            out.append((x, torch.tensor(0.25 * 2.0 ** (i % 4))))
        return out
    return records


def _losses(out, weights):
    if "loss" in out:
        return out["loss"]
    return ramp_losses(out["logits"] if "logits" in out else out["pooler_output"], weights)


def cases() -> list[Case]:
    out = []
    for name, (model, config, options, kind, *random) in MODELS.items():
        def make(model=model, config=config, options=options):
            module = getattr(hf, model)(getattr(hf, config)(**options))
            for p in module.parameters():  # tiny weights hide couplings
                p.data.mul_(4.0) if p.dim() > 1 else p.data.add_(0.1 * torch.randn_like(p))
            return module
        # Norms and rotations of these models are float32 in any case; some kernels of Mixtral know nothing else.
        out.append(Case(name, make, _records(kind), _losses, default_collate, torch.float32,
                        torch.float32 if name == "mixtral" else torch.float64, random=bool(random), alike=not random))
    return out
