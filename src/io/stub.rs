use super::{Backend, Choice, Config};
use crate::runtime::inner::Inner;
use crate::sched::core::Core;
use crate::sched::shared::Bell;

#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) choice: Option<Choice>,
}
#[derive(Debug)]
pub(crate) struct Driver {
    backend: Backend,
}
impl Driver {
    pub(crate) fn new(inner: &Inner, _core: u32) -> std::io::Result<(Driver, String)> {
        let choice = match &inner.config.io.choice {
            Some(c) => c.clone(),
            None => Choice::from_env()?,
        };
        let (backend, report) = Backend::new(choice, &Config::default())?;
        Ok((Driver { backend }, report.to_string()))
    }
    pub(crate) fn doorbell(&self) -> impl Bell + use<> {
        self.backend.doorbell()
    }
    pub(crate) fn reap(&mut self, _core: &mut Core) {}
    pub(crate) fn has_work(&self) -> bool {
        false
    }
    pub(crate) fn wait(&mut self) {
        self.backend.wait(None).unwrap()
    }
    pub(crate) fn begin_drain(&mut self) {}
    pub(crate) fn is_quiet(&self) -> bool {
        true
    }
}
impl Bell for super::Doorbell {
    fn ring(&self) {
        super::Doorbell::ring(self)
    }
}
