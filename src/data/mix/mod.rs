//! Mixed images: mixup (Zhang et al. 2018, arXiv 1710.09412) and CutMix (Yun et al. 2019, arXiv 1905.04899) by the rules of timm's
//! `timm.data.mixup.Mixup`. Image i of a batch of B is mixed with image B − 1 − i, at the size and with the normalisation that the
//! network sees. The draws are a pure function of the seed, epoch, step and particle.
//!
//! Differs: timm refuses batches of an odd number of images, which the last one of an epoch may be. Here the middle image is its own
//! partner, and with `mode = "pair"` it stays as it is. A `cutmix_minmax` that leaves one size of boxes draws this size.

use rand_chacha::ChaCha12Rng;
use tch::{Kind, Tensor};

use super::fields::{Fields, PIXELS};
use crate::base::random::{Purpose, below, beta, stream, uniform};
use crate::schema::{Reader, limits, settings, words};

#[cfg(test)]
mod tests;

words! {
    /// The images that share one draw.
    pub enum Mode {
        /// All images of a batch.
        Batch = "batch",
        /// An image and its partner.
        Pair = "pair",
        /// None: each image has its own draw.
        Elem = "elem",
    }
}

settings! {
    /// The table `[train.mixup]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Mixup {
        /// Mixup: the α of Beta(α, α), from which an image's share λ of the sum of two images is drawn; 0 for none.
        alpha: f64 = 1.0, in at_least(0.0);
        /// CutMix: the α of Beta(α, α), from which an image's share λ of the area beside a box of the other image is drawn; 0 for none.
        cutmix_alpha: f64 = 0.0, in at_least(0.0);
        cutmix_minmax: Option<[f64; 2]>, by sides;
        /// Probability that images are mixed.
        prob: f64 = 1.0, in between(0.0, 1.0);
        /// Probability of CutMix where mixup is possible as well.
        switch_prob: f64 = 0.5, in between(0.0, 1.0);
        /// Whether one draw is for a `batch`, for a `pair` of images or for a single one (`elem`).
        mode: Mode = Mode::Batch;
    } then check
}

/// Reads the key `cutmix_minmax`.
fn sides(table: &Reader) -> Option<[f64; 2]> {
    let about = "CutMix: least and largest share of the side of an image that a side of the box has, instead of `cutmix_alpha`.";
    let values = table.floats("cutmix_minmax", limits::between(0.0, 1.0)).about(about).optional()?;
    match <[f64; 2]>::try_from(values) {
        Ok([low, high]) if low < high => Some([low, high]),
        _ => {
            table.problem("cutmix_minmax", "must be two numbers, the smaller one first");
            None
        }
    }
}

/// The random numbers of a batch.
pub trait Draws {
    /// Returns a uniform number in [0, 1).
    fn uniform(&mut self) -> f64;

    /// Returns a draw from Beta(α, α).
    fn beta(&mut self, alpha: f64) -> f64;

    /// Returns a uniform whole number below `bound`.
    fn below(&mut self, bound: i64) -> i64;
}

impl Draws for ChaCha12Rng {
    fn uniform(&mut self) -> f64 {
        uniform(self)
    }

    fn beta(&mut self, alpha: f64) -> f64 {
        beta(self, alpha)
    }

    fn below(&mut self, bound: i64) -> i64 {
        below(self, bound as u64) as i64
    }
}

/// The weights and the box by which an image is mixed with its partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// The weight λ of the image's own label.
    pub share: f64,
    /// The weight of the image's own pixels outside of the box.
    blend: f64,
    /// The box of the partner's pixels: its first row, the row behind it, and its columns likewise.
    bounds: [i64; 4],
}

impl Mix {
    /// The image as it is.
    const NONE: Mix = Mix { share: 1.0, blend: 1.0, bounds: [0; 4] };

    /// The numbers of a mix, as [`Mixed`] has them: first its share, then what concerns pixels.
    pub fn numbers(&self) -> [f32; 6] {
        let [top, bottom, left, right] = self.bounds.map(|place| place as f32);
        [self.share as f32, self.blend as f32, top, bottom, left, right]
    }
}

/// The way in which two images are put together.
#[derive(Clone, Copy)]
enum Way {
    /// By mixup: their weighted sum.
    Sum,
    /// By CutMix: one with a box of the other.
    Cut,
}

impl Mixup {
    fn check(&self, table: &Reader) {
        if self.alpha == 0.0 && self.cutmix_alpha() == 0.0 {
            table.problem(
                "alpha",
                "nothing would be mixed, since cutmix_alpha is 0 as well: leave the table out, or raise one of them",
            );
        }
        if self.prob == 0.0 {
            table.problem("prob", "nothing would be mixed: leave the table out, or raise prob");
        }
        if table.sets("cutmix_alpha") && self.cutmix_minmax.is_some() {
            table.problem(
                "cutmix_alpha",
                "has no meaning beside cutmix_minmax, which gives the sides of boxes: leave one of them out",
            );
        }
        if table.sets("switch_prob") && (self.alpha == 0.0 || self.cutmix_alpha() == 0.0) {
            table.problem("switch_prob", "has no meaning unless both alpha and cutmix_alpha are above 0");
        }
    }

    /// Returns the α of CutMix, which is 1 where the sides of its boxes are given.
    fn cutmix_alpha(&self) -> f64 {
        if self.cutmix_minmax.is_some() { 1.0 } else { self.cutmix_alpha }
    }

    /// Returns the mixes of a batch of `images` images, which the network sees with `side` pixels per side, in a step of an epoch. Each data
    /// order has its own: `particle` is that of the order.
    pub fn mixes(&self, seed: u64, [epoch, step, particle]: [u64; 3], (images, side): (usize, i64)) -> Vec<Mix> {
        self.drawn(&mut stream(seed, Purpose::Mix, &[epoch, step, particle]), images, side)
    }

    /// Returns the mixes of a batch, with draws in timm's order.
    fn drawn(&self, draws: &mut dyn Draws, images: usize, side: i64) -> Vec<Mix> {
        match self.mode {
            Mode::Batch => vec![self.of_all(draws, side); images],
            Mode::Elem => self.of_each(draws, images, side),
            Mode::Pair => {
                let mut mixes = self.of_each(draws, images / 2, side);
                let partners: Vec<Mix> = mixes.iter().rev().copied().collect();
                mixes.extend((images % 2 == 1).then_some(Mix::NONE));
                mixes.extend(partners);
                mixes
            }
        }
    }

    fn of_all(&self, draws: &mut dyn Draws, side: i64) -> Mix {
        if draws.uniform() >= self.prob {
            return Mix::NONE;
        }
        let cuts = match (self.alpha > 0.0, self.cutmix_alpha() > 0.0) {
            (true, true) => draws.uniform() < self.switch_prob,
            (_, cuts) => cuts,
        };
        let (way, alpha) = if cuts { (Way::Cut, self.cutmix_alpha()) } else { (Way::Sum, self.alpha) };
        let share = draws.beta(alpha);
        self.mix(draws, way, share, side)
    }

    /// Returns `count` mixes with draws of their own. Both kinds of shares are drawn for each of them, as timm does.
    fn of_each(&self, draws: &mut dyn Draws, count: usize, side: i64) -> Vec<Mix> {
        let (mixes, cuts) = (self.alpha > 0.0, self.cutmix_alpha() > 0.0);
        let mut drawn = |wanted: bool, draw: &mut dyn FnMut(&mut dyn Draws) -> f64| -> Vec<f64> {
            if wanted { (0..count).map(|_| draw(draws)).collect() } else { vec![1.0; count] }
        };
        let switches = drawn(mixes && cuts, &mut |draws| draws.uniform());
        let cut_shares = drawn(cuts, &mut |draws| draws.beta(self.cutmix_alpha()));
        let mixup_shares = drawn(mixes, &mut |draws| draws.beta(self.alpha));
        let chances = drawn(true, &mut |draws| draws.uniform());
        let one = |i: usize| {
            let cuts = cuts && (!mixes || switches[i] < self.switch_prob);
            let (way, share) = if cuts { (Way::Cut, cut_shares[i]) } else { (Way::Sum, mixup_shares[i]) };
            if chances[i] < self.prob { self.mix(draws, way, share, side) } else { Mix::NONE }
        };
        (0..count).map(one).collect()
    }

    fn mix(&self, draws: &mut dyn Draws, way: Way, share: f64, side: i64) -> Mix {
        if share == 1.0 {
            return Mix::NONE;
        }
        let bounds = match (way, self.cutmix_minmax) {
            (Way::Sum, _) => return Mix { share, blend: share, bounds: [0; 4] },
            (Way::Cut, Some(sides)) => box_of_sides(draws, sides, side),
            (Way::Cut, None) => box_of_area(draws, 1.0 - share, side),
        };
        let [top, bottom, left, right] = bounds;
        // The box may be cut off at the border, so that the share is that of what is left of it.
        let area = ((bottom - top) * (right - left)) as f64;
        Mix { share: 1.0 - area / (side * side) as f64, blend: 1.0, bounds }
    }
}

/// Draws a box around a uniform place that has this share of the area, unless the border cuts it off.
fn box_of_area(draws: &mut dyn Draws, share: f64, side: i64) -> [i64; 4] {
    let cut = (side as f64 * share.sqrt()) as i64;
    let [row, column] = [draws.below(side), draws.below(side)];
    let (first, behind) = (|place: i64| (place - cut / 2).max(0), |place: i64| (place + (cut + 1) / 2).min(side));
    [first(row), behind(row), first(column), behind(column)]
}

/// Draws a box within the image whose sides have these least and largest shares of the image's.
fn box_of_sides(draws: &mut dyn Draws, shares: [f64; 2], side: i64) -> [i64; 4] {
    let [least, most] = shares.map(|share| (side as f64 * share) as i64);
    let [height, width] = [(); 2].map(|()| least + draws.below((most - least).max(1)));
    let [top, left] = [height, width].map(|cut| draws.below(side - cut + 1));
    [top, top + height, left, left + width]
}

/// Images with their partners, as a data set stores them, `[p, B, …]`, and how they are mixed.
pub struct Mixed {
    pub own: Fields,
    pub partners: Fields,
    /// [`Mix::numbers`] without the share, in f32, `[p, B, 5]`.
    pub mixes: Tensor,
}

impl Mixed {
    /// Applies `of` to each tensor, for example to select some particles and images.
    pub fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Mixed {
        Mixed { own: self.own.map(&of), partners: self.partners.map(&of), mixes: of(&self.mixes) }
    }

    /// Returns the tensors in the order of [`map`](Self::map).
    pub fn values(&self) -> impl Iterator<Item = &Tensor> {
        self.own.values().chain(self.partners.values()).chain([&self.mixes])
    }

    /// Returns the mixed images as the network takes them, `[p, B, 3, S, S]`, of what `prepare` makes of stored ones.
    pub fn prepared(&self, prepare: impl Fn(&Fields) -> Fields) -> Fields {
        let [own, partners] = [&self.own, &self.partners].map(|stored| prepare(stored).get(PIXELS).shallow_clone());
        Fields::of(PIXELS, mixed(&own, &partners, &self.mixes))
    }
}

/// Mixes images `[p, B, 3, S, S]` by `mixes: [p, B, 5]`.
fn mixed(own: &Tensor, partners: &Tensor, mixes: &Tensor) -> Tensor {
    let number = |index: i64| mixes.select(-1, index).unsqueeze(-1).unsqueeze(-1).unsqueeze(-1);
    let blend = number(0);
    let blended: Tensor = own * &blend + partners * (1.0 - &blend);
    let places = Tensor::arange(own.size()[4], (Kind::Float, own.device()));
    let within = |low: i64| places.ge_tensor(&number(low)).logical_and(&places.lt_tensor(&number(low + 1)));
    // [p, B, 1, 1, S] each; the rows become the last axis but one.
    let boxes = within(1).transpose(-1, -2).logical_and(&within(3));
    partners.where_self(&boxes, &blended.to_kind(own.kind()))
}
