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
}
