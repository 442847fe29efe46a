"""Prints the golden numbers of the test of ranks and scales in src/subspace/entries/low_rank/mod.rs: those of PEFT's layers with rsLoRA and
with patterns. Made with peft 0.21.2, timm 1.0.31.

    python scripts/make_lora_goldens.py
"""

import peft
import timm

PATTERNS = {"rank_pattern": {"1.mlp.fc1": 2, "mlp.fc1": 6}, "alpha_pattern": {"mlp.fc2": 5}}
print("peft", peft.__version__)
for rslora in [False, True]:
    for patterns in [{}, PATTERNS]:
        vit = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=5)
        config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["fc1", "fc2"], use_rslora=rslora, **patterns)
        for name, module in peft.get_peft_model(vit, config).named_modules():
            if hasattr(module, "scaling"):
                print(rslora, bool(patterns), name, module.r["default"], module.scaling["default"])
