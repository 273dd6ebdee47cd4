-- What came in an hour and a city.
SELECT window.start AS hour, city, count(*) AS orders, sum(cents) AS cents
FROM paid
GROUP BY window(ordered_at, '1 hour'), city
