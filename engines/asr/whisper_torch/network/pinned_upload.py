"""Copies tensors from the processor to the device without waiting."""

import torch


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns a copy of `tensor` on the device, without waiting for it.

    From pinned memory the copy is queued behind the device's current work; from other memory the
    caller would wait. torch keeps the memory until the copy is done.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
