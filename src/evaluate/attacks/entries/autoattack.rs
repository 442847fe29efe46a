//! AutoAttack: several attacks one after the other, each on the images that have resisted the ones before (Croce and Hein 2020,
//! arXiv 2003.01690, section 5). `standard` and `plus` are the authors' selections.

use anyhow::Result;

use super::apgd_ce::ApgdCe;
use super::apgd_dlr::ApgdDlr;
use super::apgd_t::ApgdT;
use super::fab::Fab;
use super::fab_t::FabT;
use super::square::Square;
use crate::evaluate::attacks::boundary::KEPT;
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, Settings, Version};

pub static ENTRY: Entry = Entry {
    key: "autoattack",
    about: "apgd-ce, apgd-t, fab-t and square, with --attack-version plus also apgd-dlr and fab, each on the images that still resist",
    reads: &["steps", "restarts", "targets", "queries", "version", "seed"],
    ranks: true,
    classes: 4,
    kept: KEPT,
    build: |settings| Box::new(AutoAttack { settings }),
};

struct AutoAttack {
    settings: Settings,
}

impl AutoAttack {
    /// Returns the attacks in their order.
    fn parts(&self) -> Vec<Box<dyn Breaking>> {
        let given = self.settings;
        // Targeted attacks and Square have one start in both selections.
        let once = Settings { restarts: Some(given.restarts.unwrap_or(1)), ..given };
        let often = Settings { restarts: Some(given.restarts.unwrap_or(5)), ..given };
        match given.version.unwrap_or(Version::Standard) {
            Version::Standard => vec![
                Box::new(ApgdCe { settings: once }),
                Box::new(ApgdT { settings: once }),
                Box::new(FabT { settings: once }),
                Box::new(Square { settings: once }),
            ],
            Version::Plus => vec![
                Box::new(ApgdCe { settings: often }),
                Box::new(ApgdDlr { settings: often }),
                Box::new(Fab { settings: often }),
                Box::new(Square { settings: once }),
                Box::new(ApgdT { settings: once }),
                Box::new(FabT { settings: once }),
            ],
        }
    }
}

impl Breaking for AutoAttack {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        self.parts().iter().try_for_each(|part| part.go(images))
    }

    fn words(&self) -> String {
        let Settings { steps, queries, version, restarts, .. } = self.settings;
        let plus = if version == Some(Version::Plus) { " plus" } else { "" };
        let steps = steps.map_or(String::new(), |steps| format!(" {steps} steps"));
        let queries = queries.map_or(String::new(), |queries| format!(" {queries} queries"));
        // Half of the attacks of `plus` have five starts unless a number is given, so that one is another attack.
        let starts = match (version, restarts) {
            (Some(Version::Plus), Some(count)) => format!(" {count} starts"),
            _ => self.settings.words_of_starts(),
        };
        let targets = self.settings.words_of_targets();
        format!("{plus}{steps}{queries}{starts}{targets}{}", self.settings.seed_words())
    }
}
