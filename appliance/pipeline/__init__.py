"""From events to the tables of days, weeks and months, on Spark. Knows the columns of events; neither Django nor the core."""
