use std::rc::Rc;

use crate::schema::{Absence, Given, Leading, Reader, Resolved, Survey, Tree, words};

words! {
    enum Color { Red = "red", Blue = "blue" }
}

settings! {
    struct Window {
        /// First step.
        start: i64, in 0..=99;
    }
}

fn shared(reader: &Reader) -> bool {
    reader.boolean("shared").about("Whether it is shared.").or(true)
}

settings! {
    struct All(width: usize) {
        root: String, because "the folder of everything";
        /// Strength of the repulsion
        /// between particles.
        gamma: f64, in at_least(0.0);
        /// Steps of a search.
        steps: usize = 10, in 1..=100;
        /// Steps that do not count; half of them by default.
        burn_in: usize, unset steps / 2, in 0..=100;
        /// Learning rate, or one per particle.
        rates: Vec<f64> = vec![0.1], in above(0.0);
        /// Radius.
        radius: Option<f64>, in between(0.0, 1.0);
        color: Color = Color::Blue, omit Color::Blue;
        colors: Option<Vec<Color>>;
        size: i64 = width as i64, in 1..=9;
        shared: bool, by shared;
        window: Window, part Window::read;
        /// No key.
        scratch: Vec<usize>, given vec![width];
    }
    then check
}

impl All {
    fn check(&self, reader: &Reader, width: usize) {
        if self.steps < width {
            reader.problem("steps", "must not be below the width");
        }
    }
}

fn read(text: &str) -> Result<All, String> {
    let tree = Tree::parse("test.toml", text).unwrap();
    let root = Reader::root(&tree);
    let all = All::read(&root, 3);
    root.close(all).map_err(|problems| problems.to_string())
}

#[test]
fn a_declaration_reads_and_writes() {
    let short = read("root = \"r\"\ngamma = 1\nstart = 7\n").unwrap();
    assert_eq!((short.burn_in, short.size, &short.scratch[..]), (5, 3, &[3][..]));
    let stated =
        "burn_in = 5\ngamma = 1.0\nrates = [0.1]\nroot = \"r\"\nshared = true\nsize = 3\nstart = 7\nsteps = 10\n";
    assert_eq!(short.resolved().to_string(), stated);
    let long = "root = \"r\"\ngamma = 1\nstart = 7\nradius = 1\ncolor = \"red\"\ncolors = [\"red\"]\nshared = false\nburn_in = 0";
    let long = read(long).unwrap().resolved();
    assert_eq!(long["radius"].as_float(), Some(1.0));
    assert_eq!((long["color"].as_str(), long["colors"].to_string().as_str()), (Some("red"), "[\"red\"]"));
    assert_eq!((long["shared"].as_bool(), long["burn_in"].as_integer()), (Some(false), Some(0)));
}

#[test]
fn every_mistake_is_reported() {
    let problems = read("gamma = -1\nsteps = 2\nrates = [0.0]\ncolor = \"rot\"\nscratch = 1\n").err().unwrap();
    let lines = [
        "test.toml: root is required: the folder of everything",
        "test.toml: start is required: a whole number from 0 to 99",
        "test.toml:1: gamma = -1: must be at least 0",
        "test.toml:2: steps = 2: must not be below the width",
        "test.toml:3: rates[0] = 0.0: must be above 0",
        "test.toml:4: color = \"rot\": must be one of red, blue",
        "test.toml:5: scratch = 1: unknown key; known: burn_in, color, colors, gamma, radius, rates, root, shared, size, start, steps",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_survey_learns_the_meaning_and_the_default() {
    let survey: Rc<Survey> = Survey::new(Given::Nothing, 0, Leading { table: "", variant: 0 });
    let reader = Reader::surveyed(&survey);
    All::read(&reader, 3);
    reader.finish();
    let asked = survey.take_asked();
    let find = |key: &str| {
        let one = asked.iter().find(|one| one.key == key).unwrap();
        (one.absence.clone(), one.about.clone())
    };
    let stated = |value: &str| Absence::Default(value.to_string());
    assert_eq!(find("root"), (Absence::Required, "The folder of everything.".to_string()));
    assert_eq!(find("gamma"), (Absence::Required, "Strength of the repulsion between particles.".to_string()));
    assert_eq!(find("steps").0, stated("10"));
    assert_eq!((find("burn_in").0, find("radius").0), (Absence::Unset, Absence::Unset));
    assert_eq!((find("color").0, find("shared").0), (stated("\"blue\""), stated("true")));
}

settings! {
    struct Crop {
        fixed: bool = false;
        scale: f64 = 0.08, in above(0.0);
        /// As many as there are sides, which are two for a fixed crop.
        tries: i64 = usual_tries(&fixed), in 1..=9, omit 1;
    }
    then check
}

fn usual_tries(fixed: &bool) -> i64 {
    if *fixed { 2 } else { 1 }
}

impl Crop {
    fn check(&self, reader: &Reader) {
        if self.fixed && reader.sets("scale") {
            reader.problem("scale", "means nothing to a fixed crop");
        }
    }
}

#[test]
fn a_stated_default_is_an_absent_key() {
    let read = |text: &str| {
        let tree = Tree::parse("test.toml", text).unwrap();
        let root = Reader::root(&tree);
        let crop = Crop::read(&root);
        root.close(crop).map(|crop| crop.resolved().to_string()).map_err(|problems| problems.to_string())
    };
    let fixed = "fixed = true\nscale = 0.08\n";
    assert_eq!(read("").unwrap(), "fixed = false\nscale = 0.08\n");
    assert_eq!(read("fixed = true").unwrap(), format!("{fixed}tries = 2\n"));
    assert_eq!(read(fixed).unwrap(), format!("{fixed}tries = 2\n"));
    assert!(read("fixed = true\nscale = 0.1").unwrap_err().contains("means nothing to a fixed crop"));
    // The value that is left out is another one than that of an absent key here.
    assert_eq!(read(&format!("{fixed}tries = 1\n")).unwrap(), format!("{fixed}tries = 1\n"));
}
