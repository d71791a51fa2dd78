"""A clause's way through the stages: text, semantic ids, coarse codes, whole frames, sound."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.base.codec import CodecInfo, Samples
from engines.tts.bark.layout import BarkLayout
from engines.tts.bark.settings import Settings
from engines.tts.bark.stage_pool import StagePool
from engines.tts.bark.stage_tokens import CoarseItem, FineItem, SemanticItem, SoundItem
from engines.tts.bark.token_checks import (
    check_coarse,
    check_fine,
    check_semantic,
    check_sound,
    check_text,
)
from engines.tts.bark.voices import SpeakerPrompt


@dataclass(frozen=True, slots=True)
class BarkStages:
    """The pools of all stages. Clauses pass through them independently of each other, so one may be
    in the first stage while another is in the last."""

    layout: BarkLayout
    settings: Settings
    codec_info: CodecInfo
    semantic: StagePool[SemanticItem]
    coarse: StagePool[CoarseItem]
    fine: StagePool[FineItem]
    codec: StagePool[SoundItem]

    async def sound(
        self, text_ids: Sequence[int], prompt: SpeakerPrompt | None, *, seed: int
    ) -> Samples:
        """Returns the sound of a clause. `text_ids`: of the tokenizer, at most `layout.text_ids`.
        Cancelling the call frees its slot before the next step of its stage. Raises InvalidTokens,
        and what a stage raises."""
        layout, settings = self.layout, self.settings
        check_text(text_ids, layout)
        max_ids = min(settings.max_semantic_ids, layout.max_semantic_ids)
        semantic = SemanticItem.of(
            text_ids,
            prompt,
            layout,
            max_ids=max_ids,
            min_stop_chance=settings.min_stop_chance,
            seed=seed,
        )
        await self.semantic.run(semantic)
        check_semantic(semantic.ids, max_ids, layout)
        coarse = CoarseItem(semantic.ids, prompt, layout, seed=seed)
        if coarse.total == 0:
            return np.zeros(0, np.float32)
        await self.coarse.run(coarse)
        coarse_codes = check_coarse(coarse.ids, len(semantic.ids), layout)
        fine = FineItem(coarse_codes, prompt, layout, seed=seed)
        await self.fine.run(fine)
        check_fine(fine.codes, coarse_codes, layout)
        clip = SoundItem(fine.codes)
        await self.codec.run(clip)
        check_sound(clip.sound, fine.codes.shape[1], self.codec_info.frame_samples)
        return clip.sound

    async def aclose(self) -> None:
        """Ends the threads of all pools."""
        await self.semantic.aclose()
        await self.coarse.aclose()
        await self.fine.aclose()
        await self.codec.aclose()
