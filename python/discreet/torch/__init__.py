"""Private training with PyTorch. Users of Opacus switch by changing one import.

    from discreet.torch import PrivacyEngine

    module, optimizer, loader = PrivacyEngine().make_private(
        module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=1.1, max_grad_norm=1.0)

The training loop does not change: loss.backward(); optimizer.step().
"""

from discreet.torch.engine import Epsilon, PrivacyEngine
from discreet.torch.loader import BatchMemoryManager
from discreet.torch.modules import fix, validate
from discreet.torch.rules import register_grad_sampler

__all__ = ["BatchMemoryManager", "Epsilon", "PrivacyEngine", "fix", "register_grad_sampler", "validate"]
