"""Prints the golden numbers of the test in src/train/directions/mod.rs: the factors A of PEFT's start by EVA (arXiv 2410.07170) of two
layers. Made with peft 0.21.2 and torch 2.11.0.

    python scripts/make_eva_goldens.py
"""

import peft
import torch
from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = torch.nn.Linear(12, 4), torch.nn.Linear(8, 4)

    def forward(self, wide, narrow):
        return self.wide(wide) + self.narrow(narrow)


def rows(batch, width):
    i = torch.arange(24, dtype=torch.float64)[:, None] + 24 * batch
    j = torch.arange(width, dtype=torch.float64)[None]
    return (torch.sin(i * 0.7 + j * j) * torch.exp(j * -0.5) + torch.cos(i * 1.3 + j * 2) * 0.05 + j * 0.1).float()


print("peft", peft.__version__, "torch", torch.__version__)
config = LoraConfig(r=3, target_modules=["wide", "narrow"], init_lora_weights="eva", eva_config=EvaConfig(rho=1.0))
model = get_peft_model(Tiny(), config)
data = [{"wide": rows(batch, 12), "narrow": rows(batch, 8)} for batch in range(4)]
initialize_lora_eva_weights(
    model,
    data,
    forward_fn=lambda model, batch: model(**batch),
    prepare_model_inputs_fn=None,
    prepare_layer_inputs_fn=lambda inputs, model_input, name: inputs[0],
    show_progress_bar=False,
)
for name, width in [("wide", 12), ("narrow", 8)]:
    layer = getattr(model.base_model.model, name)
    assert not layer.lora_B["default"].weight.any()
    print(f"({width}, &{layer.lora_A['default'].weight.flatten().tolist()}),")
