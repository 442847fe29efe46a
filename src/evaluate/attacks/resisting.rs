//! Attacks that go on with the images that are still predicted correctly, from start to start and from attack to attack.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::{Attack, Classifier, Clean, Settings, project};

/// An attack in several goes, each on the images that have resisted so far.
pub(super) trait Breaking {
    /// Makes all goes.
    ///
    /// # Errors
    /// Fails if the classifier fails.
    fn go(&self, images: &mut Resisting) -> Result<()>;

    /// Returns the settings that distinguish two such attacks, each with a blank before it.
    fn words(&self) -> String;
}

impl<B: Breaking> Attack for B {
    /// Returns the pixels of the first go that changed the predicted class, and the clean ones where none did or where the
    /// image is predicted wrongly as it is.
    fn run(&self, clean: &Clean, epsilons: &[f64], classifier: &dyn Classifier) -> Result<Vec<Tensor>> {
        let moved = |&epsilon: &f64| {
            if epsilon == 0.0 {
                return Ok(clean.pixels.shallow_clone());
            }
            let mut images = Resisting::new(clean, epsilon, classifier)?;
            self.go(&mut images)?;
            Ok(images.moved)
        };
        epsilons.iter().map(moved).collect()
    }

    fn settings(&self, _: f64) -> String {
        self.words()
    }

    fn variant(&self) -> String {
        self.words().trim_start().to_string()
    }
}

/// The images of one go, which are all predicted correctly.
pub(super) struct On<'a> {
    pub clean: &'a Clean<'a>,
    pub epsilon: f64,
    pub classifier: &'a dyn Classifier,
}

/// The aim of one go.
pub(super) struct Towards {
    /// A wrong class of each image, `[B]`.
    pub classes: Tensor,
    /// The number of the start: the rank of the class, and the number among its starts.
    pub number: [u64; 2],
}

/// The images under attack, and which of them resist.
pub(super) struct Resisting<'a> {
    clean: &'a Clean<'a>,
    epsilon: f64,
    classifier: &'a dyn Classifier,
    /// The moved pixels of the images that do not resist, and the clean ones of the others.
    moved: Tensor,
    /// The places of those that resist.
    places: Vec<i64>,
}

impl<'a> Resisting<'a> {
    fn new(clean: &'a Clean<'a>, epsilon: f64, classifier: &'a dyn Classifier) -> Result<Resisting<'a>> {
        let (moved, all) = (clean.pixels.copy(), 0..clean.pixels.size()[0]);
        let right = is_right(&classifier.scores(clean.pixels)?, clean.labels)?;
        let places = all.zip(right).filter(|(_, right)| *right).map(|(place, _)| place).collect();
        Ok(Resisting { clean, epsilon, classifier, moved, places })
    }

    /// Moves the images that still resist, and keeps what changes the predicted class within the budget.
    ///
    /// # Errors
    /// Fails if `attack` fails.
    pub fn attack(&mut self, attack: &dyn Fn(&On) -> Result<Tensor>) -> Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        let at = Tensor::from_slice(&self.places).to_device(self.moved.device());
        let (pixels, labels) = (self.clean.pixels.index_select(0, &at), self.clean.labels.index_select(0, &at));
        let indices: Vec<u32> = self.places.iter().map(|place| self.clean.indices[*place as usize]).collect();
        let clean = Clean { pixels: &pixels, labels: &labels, indices: &indices };
        let found = attack(&On { clean: &clean, epsilon: self.epsilon, classifier: self.classifier })?;
        let found = project(&pixels, &found.to_kind(Kind::Double), self.epsilon);
        let right = is_right(&self.classifier.scores(&found)?, &labels)?;
        for (row, place) in self.places.iter().enumerate().filter(|(row, _)| !right[*row]) {
            self.moved.get(*place).copy_(&found.get(row as i64));
        }
        let mut right = right.into_iter();
        self.places.retain(|_| right.next().unwrap_or(true));
        Ok(())
    }

    /// Makes a go for each wrong class to aim at and each start, the most probable classes first.
    ///
    /// # Errors
    /// Fails if `attack` fails.
    pub fn attack_towards(
        &mut self,
        settings: &Settings,
        attack: &dyn Fn(&On, &Towards) -> Result<Tensor>,
    ) -> Result<()> {
        for (rank, number) in settings.aims() {
            self.attack(&|on| {
                let scores = on.classifier.scores(on.clean.pixels)?;
                if rank as i64 >= scores.size()[1] {
                    return Ok(on.clean.pixels.shallow_clone());
                }
                attack(on, &Towards { classes: ranked(&scores, rank), number: [rank as u64, number] })
            })?;
        }
        Ok(())
    }
}

/// Returns of which images the label has the highest score.
fn is_right(scores: &Tensor, labels: &Tensor) -> Result<Vec<bool>> {
    Ok(Vec::try_from(scores.argmax(-1, false).eq_tensor(labels))?)
}

/// Returns the score of a class of each image, `[B]`.
pub(super) fn of_class(scores: &Tensor, classes: &Tensor) -> Tensor {
    scores.gather(1, &classes.unsqueeze(1), false).squeeze_dim(1)
}

/// Returns the k-th most probable class of each image, `[B]`, counted from 0.
pub(super) fn ranked(scores: &Tensor, k: usize) -> Tensor {
    let (_, classes) = scores.sort(-1, false);
    classes.select(1, classes.size()[1] - 1 - k as i64)
}
