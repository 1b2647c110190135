-- Run once, when the container makes its database.
CREATE EXTENSION kb CASCADE;
