//! Converts SVG to PNG with a built-in font, so that pictures hold the same text on every machine. The font is DejaVu
//! Sans Condensed, which is about as wide as the Helvetica that the figures are laid out for.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// The only font family available. Its faces are the condensed ones.
const FAMILY: &str = "DejaVu Sans";

/// The largest number of pixels of a picture (400 MB of memory). A larger picture means that the scale is wrong.
const MOST_PIXELS: f64 = 1e8;

/// Returns the bytes of a PNG that shows `svg` at `scale` pixels per SVG unit. Images must be embedded as data URLs.
///
/// # Errors
/// Fails if `svg` is not an SVG, or if the picture would have no pixel or more than 10⁸.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>> {
    let tree = Tree::from_str(svg, &options()).context("picture: is no SVG that can be drawn")?;
    let size = tree.size();
    let (width, height) = ((size.width() * scale).ceil(), (size.height() * scale).ceil());
    let fits = width >= 1.0 && height >= 1.0 && f64::from(width) * f64::from(height) <= MOST_PIXELS;
    ensure!(fits, "picture: {width} × {height} pixels; it must have 1 to 10⁸ pixels, choose another scale");
    let mut pixels = Pixmap::new(width as u32, height as u32).context("picture: no memory for its pixels")?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().context("picture: cannot be encoded as PNG")
}

/// Options that do not depend on the machine: no system fonts, and no files besides the SVG.
fn options() -> Options<'static> {
    static FONTS: OnceLock<Arc<Database>> = OnceLock::new();
    let mut options = Options { font_family: FAMILY.to_string(), fontdb: fonts(&FONTS), ..Options::default() };
    options.image_href_resolver.resolve_string = Box::new(|_, _| None);
    options
}

fn fonts(loaded: &OnceLock<Arc<Database>>) -> Arc<Database> {
    let load = || {
        let mut fonts = Database::new();
        fonts.load_font_data(dejavu::sans_condensed::regular().to_vec());
        fonts.load_font_data(dejavu::sans_condensed::bold().to_vec());
        fonts.set_sans_serif_family(FAMILY);
        fonts.set_serif_family(FAMILY);
        fonts.set_monospace_family(FAMILY);
        Arc::new(fonts)
    };
    loaded.get_or_init(load).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(svg: &str, scale: f32) -> image::RgbaImage {
        image::load_from_memory(&png(svg, scale).unwrap()).unwrap().into_rgba8()
    }

    fn drawing(content: &str) -> String {
        let size = r#"width="40" height="20" viewBox="0 0 40 20""#;
        format!(r#"<svg {size} xmlns="http://www.w3.org/2000/svg">{content}</svg>"#)
    }

    fn dark(image: &image::RgbaImage) -> usize {
        image.pixels().filter(|pixel| pixel.0[3] > 128 && pixel.0[0] < 128).count()
    }

    #[test]
    fn text_of_any_family_is_drawn_and_bold_is_bolder() {
        let text = |weight: &str| {
            let text = format!(r#"<text x="2" y="16" font-size="16" {weight} font-family="Helvetica, sans-serif">"#);
            decoded(&drawing(&format!("{text}ε × Ab</text>")), 3.0)
        };
        let (regular, bold) = (text(""), text(r#"font-weight="bold""#));
        assert_eq!(regular.dimensions(), (120, 60));
        assert!(dark(&regular) > 200 && dark(&bold) > dark(&regular) + 100, "{} {}", dark(&regular), dark(&bold));
    }

    #[test]
    fn embedded_images_are_drawn_and_files_are_not_read() {
        // A PNG of one black pixel.
        let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
        let image = |href: &str| decoded(&drawing(&format!(r#"<image width="20" height="20" href="{href}"/>"#)), 1.0);
        assert_eq!(dark(&image(&format!("data:image/png;base64,{pixel}"))), 400);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("black.png");
        image::GrayImage::new(1, 1).save(&path).unwrap();
        assert_eq!(dark(&image(path.to_str().unwrap())), 0);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let failure = |svg: &str, scale| format!("{:#}", png(svg, scale).unwrap_err());
        assert!(failure("no picture", 1.0).contains("no SVG"));
        for scale in [0.0, -1.0, f32::NAN, 1e6] {
            assert!(failure(&drawing(""), scale).contains("choose another scale"), "{scale}");
        }
    }
}
