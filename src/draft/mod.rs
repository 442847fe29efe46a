//! A first config for a user's own checkpoint and samples, images or texts: both are looked at, the settings of a method are fitted to the
//! number of samples, and everything is written down with comments.

mod checkpoint;
mod folders;
mod images;
mod layouts;
mod methods;
mod tables;

use std::fmt::Write;

use anyhow::Result;

use crate::base::small::for_shell;
use methods::Sizes;

pub use checkpoint::{Checkpoint, Suggested};
pub use images::Images;
pub use methods::{METHODS, Recipe};

/// The seed of a first config.
pub const SEED: u64 = 1;

/// The steps that a first training has about, and the limits of its epochs.
const STEPS: usize = 2000;
const EPOCHS: std::ops::RangeInclusive<usize> = 5..=60;

/// Returns a commented config that trains a checkpoint on images by a method; `name` is that of the experiment and
/// `file` that of the config.
///
/// # Errors
/// Fails if the method's file is damaged.
pub fn write(checkpoint: &Checkpoint, images: &Images, recipe: &Recipe, name: &str, file: &str) -> Result<String> {
    let (batch_size, epochs) = size(images.train);
    let steps = epochs * images.train.div_ceil(batch_size);
    let sizes = Sizes { images: images.train, classes: images.classes.len(), batch_size, steps };
    let method = recipe.tables(sizes, &checkpoint.low_rank)?;
    let mut text = String::new();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    writeln!(text, "# {}.", method.about)?;
    writeln!(text, "# Run: bella train --config {}; bella list keys METHOD explains every key.\n", for_shell(file))?;
    writeln!(text, "name = {}\nseed = {SEED}\n", quoted(name))?;
    writeln!(text, "[checkpoint] # {}", checkpoint.about)?;
    writeln!(text, "path = {}", quoted(&checkpoint.path.to_string_lossy()))?;
    text += &checkpoint.lines;
    if let Some(Suggested { value, why }) = &checkpoint.normalize {
        writeln!(text, "normalize = {value} # {why}")?;
    }
    writeln!(text, "\n{}", method.head.unwrap_or_else(|| head(checkpoint, images)))?;
    let asked = checkpoint.questions.filter(|_| images.has_questions).unwrap_or_default();
    writeln!(text, "[data.{}] # {}\n{}{asked}", images.key, images.about, images.table)?;
    writeln!(text, "{}", method.tables)?;
    writeln!(text, "[train] # {steps} steps")?;
    writeln!(text, "epochs = {epochs}\nbatch_size = {batch_size}")?;
    writeln!(text, "warmup_steps = {}", (steps / 10).min(500))?;
    text += &method.train;
    if !method.has_phases {
        writeln!(text, "early_stop = {} # epochs without a lower validation NLL", epochs.div_ceil(3).max(3))?;
    }
    writeln!(text, "{}", checkpoint.precision)?;
    Ok(text)
}

/// Returns the images of a batch and the epochs for a number of training images.
fn size(images: usize) -> (usize, usize) {
    let batch_size = match images {
        0..500 => 16,
        500..5_000 => 32,
        _ => 128,
    };
    let epochs = STEPS.div_ceil(images.div_ceil(batch_size).max(1));
    (batch_size, epochs.clamp(*EPOCHS.start(), *EPOCHS.end()))
}

/// Returns the table of the head that suits a checkpoint.
fn head(checkpoint: &Checkpoint, images: &Images) -> String {
    let classes = images.classes.len();
    let (table, why) = match checkpoint.classes {
        _ if checkpoint.questions.is_some() && images.has_questions => {
            ("answers", "free answers, by the checkpoint's own output matrix".to_string())
        }
        Some(own) if own == classes => {
            ("checkpoint", "the checkpoint's own classifier; [head.linear] trains a new one".to_string())
        }
        _ if checkpoint.has_text => ("zero-shot", "from the text tower and the names of the classes".to_string()),
        Some(own) => ("linear", format!("a new classifier: the checkpoint's own has {own} classes")),
        None => ("linear", "a new classifier: the checkpoint has none".to_string()),
    };
    format!("[head.{table}] # {why}\n")
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_first_training_has_enough_steps() {
        assert_eq!(size(40), (16, 60));
        assert_eq!(size(1000), (32, 60));
        assert_eq!(size(4000), (32, 16));
        assert_eq!(size(40_000), (128, 7));
        assert_eq!(size(1_000_000), (128, 5));
    }
}
