//! The site that SWS serves when it is given none: a newcomer opens a browser and sees a page.

use crate::site::Site;

/// The built-in site. It has no dates, since it has no files; its entity tags do for caches.
pub(crate) fn site() -> Site {
    let mut site = Site::default();
    for (key, page) in [
        ("/index.html", include_str!("builtin/index.html")),
        ("/how/index.html", include_str!("builtin/how.html")),
        // Browsers ask for one with every page; an answer keeps the tally of 404s meaningful.
        ("/favicon.svg", include_str!("builtin/favicon.svg")),
    ] {
        site.add_file(key, page.into(), None);
    }
    site
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_pages_are_there_and_need_nothing_from_elsewhere() {
        let site = site();
        for key in [
            "/",
            "/index.html",
            "/how",
            "/how/",
            "/how/index.html",
            "/favicon.svg",
        ] {
            assert!(site.get(key.as_bytes()).is_some(), "{key}");
        }
        for page in [
            include_str!("builtin/index.html"),
            include_str!("builtin/how.html"),
        ] {
            assert!(!page.contains("<script") && !page.contains("<link rel=\"stylesheet\""));
            assert!(!page.contains("http://") && !page.contains("https://"));
            assert!(page.contains("href=\"/_mely\""));
        }
    }

    /// The luminance of `#rrggbb`, as WCAG 2 has it.
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&color[at..at + 2], 16).unwrap();
            let value = f64::from(value) / 255.0;
            match value <= 0.04045 {
                true => value / 12.92,
                false => ((value + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// AA for text, in both schemes.
    #[test]
    fn text_and_links_can_be_read() {
        for (name, style, texts) in [
            (
                "index",
                include_str!("builtin/index.html"),
                &["ink", "dim", "b"][..],
            ),
            ("how", include_str!("builtin/how.html"), &["ink", "b"]),
            (
                "figures",
                include_str!("builtin/figures.css"),
                &["ink", "dim", "link"],
            ),
        ] {
            let (light, dark) = style.split_once("@media").expect("two schemes");
            for scheme in [light, dark.split_once('}').unwrap().0] {
                let color = |name: &str| {
                    let (_, rest) = scheme.split_once(&format!("--{name}: ")).expect(name);
                    &rest[..7]
                };
                for text in texts {
                    let contrast = contrast(color(text), color("paper"));
                    assert!(contrast >= 4.5, "{name} {text}: {contrast:.2}");
                }
            }
            // Text that is made paler would have to be reckoned with.
            assert!(!style.contains("opacity"), "{name}");
        }
    }
}
