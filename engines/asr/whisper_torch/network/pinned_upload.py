"""From the processor to the device without waiting."""

import torch


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """From pinned memory the copy is queued behind what the device computes; from any other, the
    caller would wait for it. torch keeps the memory until it was copied."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
