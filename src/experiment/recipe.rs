//! The rules that connect a recipe of training, such as smoothed or mixed labels, with the method and the data set.

use super::data::DataSpec;
use super::train_table::{PrefixCache, Sampling};
use super::training::Training;
use crate::data::Medium;
use crate::machine::Precision;
use crate::methods::{Origin, RowsAre};
use crate::model::CheckpointSpec;
use crate::schema::Reader;

impl Training {
    /// Checks that the method follows the loss and the images that `[train]` asks for.
    pub(super) fn check_loss(&self, root: &Reader) {
        let (method, fitted) = (&self.method.key, self.method.spec.fits_likelihood());
        let sampled = (self.train.sampling != Sampling::Shuffled).then_some("sampling");
        let changed = self.train.changed_loss();
        if let Some(key) = changed.or(sampled).filter(|_| fitted) {
            let why = format!(
                "{key}: method.{method} is fitted to the plain likelihood of every image once, which the particles would not \
                 maximise: leave it out"
            );
            root.problem("train", why);
        } else if let Some(key) = changed.filter(|_| self.method.spec.has_own_loss()) {
            let why = format!("{key}: method.{method} has a loss of its own, of the plain likelihood: leave it out");
            root.problem("train", why);
        }
        if let Some(key) = changed.filter(|_| self.train.loo_samples > 0) {
            root.problem("train", format!("{key}: loo_samples is of the plain likelihood: leave one of them out"));
        }
    }

    /// Checks that there are images to mix, and that the method does without quantities of single images.
    pub(super) fn check_mixup(&self, root: &Reader, data: &DataSpec) {
        if self.train.mixup.is_none() {
            return;
        }
        let (medium, method) = (data.dataset.medium(), &self.method.key);
        if medium != Medium::Images {
            root.problem("train", format!("mixup: mixes images, and {} has {medium}: leave it out", data.key));
        }
        let spec = &self.method.spec;
        if spec.needs_classes() && spec.post_hoc().is_none() && !spec.has_own_loss() {
            let why = format!(
                "mixup: method.{method} takes outputs with one label for each image, and a mixed image has two: leave it out"
            );
            root.problem("train", why);
        }
        if spec.squares_images() {
            let why = format!(
                "mixup: method.{method} takes squared gradients of single images, and no image is single: leave it out"
            );
            root.problem("train", why);
        }
    }

    /// Checks that what enters the first trained block may be kept where it is to be, and that gradients by pixels can be taken where the
    /// method takes them.
    pub(super) fn check_pixels(&self, root: &Reader, data: &DataSpec, checkpoint: &CheckpointSpec) {
        let is_kept = matches!(self.train.prefix_cache, PrefixCache::Memory | PrefixCache::Disk);
        if let Some(why) = self.why_no_prefix(data.augment.is_some()).filter(|_| is_kept) {
            root.problem("train", format!("prefix_cache: {why}"));
        }
        let has_pixels = data.dataset.medium() == Medium::Images && !checkpoint.kind.runs_own_code();
        if self.method.spec.differentiates_pixels() && !has_pixels {
            let why = "takes gradients by pixels, through a network of images that bella computes itself, which this one is not: set \
                       space = \"weights\", \"logits\" or \"features\"";
            root.problem("method", format!("{} {why}", self.method.key));
        }
    }

    /// Checks that the posterior is one of theta, of which an average has a meaning.
    pub(super) fn check_ema(&self, root: &Reader) {
        let (method, spec) = (&self.method.key, &self.method.spec);
        let trains = matches!(spec.origin(), Origin::Training);
        let points = self.method_entry().is_some_and(|entry| entry.rows == RowsAre::Points);
        if self.train.ema.is_none() || trains && !spec.gathers_posterior() && (points || spec.drops_around_theta()) {
            return;
        }
        let why = match trains {
            true => "keeps Gaussians or draws around theta, which an average of theta would not fit",
            false => "trains nothing here",
        };
        root.problem("train", format!("ema: method.{method} {why}: leave it out"));
    }

    /// Checks that a step of f16, which is skipped if its gradient is not finite, has one gradient of theta.
    pub(super) fn check_scaled(&self, root: &Reader) {
        let spec = &self.method.spec;
        if self.train.precision != Precision::F16 || spec.skips_steps() {
            return;
        }
        let why = format!(
            "precision: \"f16\" scales the loss of one gradient in a step, and method.{} takes others: use \"bf16\" or \"f32\"",
            self.method.key
        );
        root.problem("train", why);
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;
    use crate::schema::Tree;

    /// Returns the mistakes of a config in f16 with the tables of a method and its optimizer.
    fn in_f16(tables: &str) -> String {
        let text = format!(
            "name = \"half\"\nseed = 3\n[checkpoint]\npath = \"x.pt\"\nnormalize = \"clip\"\n[head.checkpoint]\n[data.digits]\n\
             [subspace.low-rank]\nrank = 2\n[train]\nepochs = 1\nbatch_size = 8\nselect = \"last-epoch\"\nprecision = \"f16\"\n\
             {tables}"
        );
        let tree = Tree::parse("half.toml", &text).unwrap();
        Experiment::read(&tree).map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn methods_that_ask_for_more_than_one_gradient_are_refused_in_f16() {
        let adamw = "[optimizer.adamw]\nlr = 1e-3\n";
        let svgd = |keys: &str| in_f16(&format!("[method.svgd]\nparticles = 2\ngamma = 0.1\n{keys}\n{adamw}"));
        assert_eq!(svgd(""), "");
        let place = svgd("drive = \"weight\"");
        assert!(place.starts_with("half.toml:10: train: precision: "), "{place}");
        let blob = in_f16(&format!("[method.blob]\ncycle = 5\nsamples = 2\n{adamw}"));
        let plain =
            |keys: &str| in_f16(&format!("[method.blob]\ncycle = 5\nsamples = 2\nflipout = false\n{keys}{adamw}"));
        assert_eq!(plain(""), "", "without flipout a step takes one gradient");
        assert_eq!(in_f16("[method.ivon]\nlr = 0.1\ness = 100.0\nmc_samples = 2\n[optimizer.none]\n"), "");
        let vogn = in_f16("[method.vogn]\nlr = 0.1\ness = 100.0\n[optimizer.none]\n");
        for (refused, method) in [(svgd("drive = \"weight\""), "svgd"), (blob, "blob"), (vogn, "vogn")] {
            let expected =
                format!("\"f16\" scales the loss of one gradient in a step, and method.{method} takes others");
            assert!(refused.contains(&expected), "{method}: {refused}");
        }
    }
}
