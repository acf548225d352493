"""Why a job does not run: one answer for its page, `lowkiq find`, the API and the alert of a late queue."""
