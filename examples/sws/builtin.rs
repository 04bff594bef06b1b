//! The site that SWS serves when it is given none: a newcomer opens a browser and sees a page.

use crate::site::Site;

/// The built-in site. It has no dates, since it has no files; its entity tags do for caches.
pub(crate) fn site() -> Site {
    let mut site = Site::default();
    site.add_file("/index.html", include_bytes!("builtin/index.html"), None);
    site.add_file("/how/index.html", include_bytes!("builtin/how.html"), None);
    // Browsers ask for one with every page; an answer keeps the tally of 404s meaningful.
    site.add_file("/favicon.svg", include_bytes!("builtin/favicon.svg"), None);
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
