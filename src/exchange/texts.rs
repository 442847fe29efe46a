//! The Python that loads an export of a network that writes texts, and computes its logits.

use std::path::Path;

use super::head::lines as through_head;
use super::outgoing::{Loaded, Outgoing};
use super::peft::HeadPlace;
use crate::model::families::Class;

/// Returns the lines that load the first model of the export in `folder` and compute its logits after each prompt.
pub fn lines(outgoing: &Outgoing, class: &Class, (folder, head): (&Path, &HeadPlace), loaded: Loaded) -> String {
    let at = outgoing.folder(folder, 0).display().to_string();
    let from = match loaded {
        Loaded::Adapter => outgoing.source().display().to_string(),
        Loaded::Weights => at.clone(),
    };
    let (mut text, mut wrap) = (String::new(), String::new());
    if loaded == Loaded::Adapter {
        text += "from peft import PeftModel\n";
        wrap = format!("model = PeftModel.from_pretrained(model, {at:?})\n");
    }
    let sees = outgoing.session.model.image_side() > 0;
    let pixels = if sees { ", \"pixel_values\"" } else { "" };
    // The logits were computed in f32, whatever the type of the weights.
    text += &format!(
        "import torch, transformers\nfrom safetensors.torch import load_file\n\
         model = transformers.{}.from_pretrained({from:?}, dtype=torch.float32)\n{wrap}\
         model.eval()\nexpected = load_file(\"{at}/expected.safetensors\")\n\
         inputs = {{name: expected[name] for name in (\"input_ids\", \"attention_mask\"{pixels})}}\n\
         last = expected[\"attention_mask\"].sum(1) - 1\nwith torch.no_grad():\n",
        class.name
    );
    let rows = "[torch.arange(len(last)), last]";
    text += &match head {
        HeadPlace::Beside { normalised } => {
            let output = format!("    output = model(**inputs, output_hidden_states=True).{}{rows}\n", class.features);
            output + &through_head(&at, *normalised)
        }
        HeadPlace::Own | HeadPlace::Saved(..) => {
            format!("    output = model(**inputs).logits{rows}{}\n", words(outgoing))
        }
    };
    text + "    print((output - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n"
}

/// Returns the choice of the label words among the logits of all tokens; nothing where all are wanted.
fn words(outgoing: &Outgoing) -> String {
    let rows = outgoing.session.model.head.rows.as_ref();
    rows.map_or(String::new(), |rows| {
        let ids: Vec<String> = (0..rows.numel() as i64).map(|row| rows.int64_value(&[row]).to_string()).collect();
        format!("[:, [{}]]", ids.join(", "))
    })
}
